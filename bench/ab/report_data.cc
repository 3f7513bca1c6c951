#include "bench/ab/report_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "bench/ab/output_parser.h"
#include "bench/sim/metrics.h"
#include "bench/sim/result_json.h"

namespace pacecar::ab {
namespace {

using Json = nlohmann::json;

// To thousandths.
double rounded(double value) { return std::round(value * 1000) / 1000; }

constexpr size_t kPoints = 500;       // of a series: as many as a plot has pixels for
constexpr size_t kFewestPoints = 20;  // of a rate, however few packets it is of
constexpr double kPacketsPerPoint = 8;
constexpr size_t kFlowsExplained = 4;               // a reader looks at one at a time
constexpr size_t kLimitPoints = 250;                // of each of their four lines
constexpr std::string_view kWallMetric = "wall_s";  // has a place of its own in the record

Json time_json(Duration time) { return time == Duration::max() ? Json() : Json(time.us()); }

Json flows_json(const std::vector<FlowResult>& flows) {
  const auto column = [&](auto figure) {
    return json_list(flows, [&](const FlowResult& flow) { return Json(flow.*figure); });
  };
  const auto times = [&](Duration FlowResult::*time) {
    return json_list(flows, [&](const FlowResult& flow) { return time_json(flow.*time); });
  };
  return {{"id", column(&FlowResult::id)},
          {"source", column(&FlowResult::source)},
          {"destination", column(&FlowResult::destination)},
          {"job", column(&FlowResult::job)},
          {"bytes", column(&FlowResult::bytes)},
          {"start_us", times(&FlowResult::start)},
          {"finish_us", times(&FlowResult::finish)},
          {"received_us", times(&FlowResult::received)},
          {"ideal_us", times(&FlowResult::ideal)}};
}

double mean_of(const double* first, const double* last) {
  return std::accumulate(first, last, 0.0) / static_cast<double>(last - first);
}

double max_of(const double* first, const double* last) { return *std::max_element(first, last); }

// Joins `step` neighbours by `join`.
Series joined(const Series& series, size_t step,
              double (*join)(const double* first, const double* last)) {
  Series result{series.name, series.interval * static_cast<int64_t>(step), {}};
  for (size_t i = 0; i < series.values.size(); i += step) {
    const double* first = series.values.data() + i;
    result.values.push_back(join(first, first + std::min(step, series.values.size() - i)));
  }
  return result;
}

// The least number of neighbours to join, so that a plot has few enough points.
size_t fewest(const Series& series) {
  return std::max<size_t>((series.values.size() + kPoints - 1) / kPoints, 1);
}

// The number of samples of a rate to join: so many that a flow under way sends some packets in
// them. With fewer the rate would jump between 0 and that of a whole packet.
size_t smoothing(const RunResult& run) {
  if (run.rates.empty() || run.nics.data_packets_sent == 0) return 1;
  double sum = 0;
  double samples = 0;
  for (const Series& rate : run.rates) {
    const auto sends = [](double value) { return value > 0; };
    const auto first = std::ranges::find_if(rate.values, sends);
    const auto last = std::find_if(rate.values.rbegin(), rate.values.rend(), sends).base();
    if (first == rate.values.end()) continue;
    sum += std::accumulate(first, last, 0.0);
    samples += static_cast<double>(last - first);
  }
  const double packet = static_cast<double>(run.nics.data_bytes_sent) /
                        static_cast<double>(run.nics.data_packets_sent);
  const Series& any = run.rates[0];
  const double sample = sum / samples / 8 * any.interval.seconds();  // bytes, the mean
  const double most = static_cast<double>(any.values.size()) / kFewestPoints;
  const double wanted =
      sum == 0 ? 1 : std::min(std::ceil(kPacketsPerPoint * packet / sample), most);
  return std::max(fewest(any), static_cast<size_t>(wanted));
}

// Values have four digits, which is all that a plot shows.
Json series_json(const Series& series, double scale) {
  const auto shown = [scale](double value) {
    return std::stod(fmt::format("{:.4g}", value * scale));
  };
  return {{"name", series.name},
          {"interval_us", series.interval.us()},
          {"values", json_list(series.values, shown)}};
}

// The most frequent reason of every `step` samples, written where it changes.
Json reasons_json(const std::vector<LimitedBy>& reasons, size_t step) {
  Json changes = Json::array();
  std::string_view before;
  for (size_t i = 0; i < reasons.size(); i += step) {
    std::array<size_t, kEveryLimit.size()> found{};
    for (size_t j = i; j < std::min(i + step, reasons.size()); ++j) {
      ++found[static_cast<size_t>(reasons[j])];
    }
    const auto most = std::ranges::max_element(found) - found.begin();
    const std::string_view reason = to_string(static_cast<LimitedBy>(most));
    if (reason != before) changes.push_back(Json::array({i / step, reason}));
    before = reason;
  }
  return changes;
}

// A flow's rate, and its limits. Only the rate is averaged over `smoothing` samples.
Json limit_json(const Series& rate, const LimitSeries& limits, size_t smoothing) {
  const size_t step = (limits.limited_by.size() + kLimitPoints - 1) / kLimitPoints;
  const auto values = [&](const std::vector<double>& figures) {
    const Series series{.name = "", .interval = limits.interval, .values = figures};
    return series_json(joined(series, step, mean_of), 1e-9).at("values");
  };
  return {{"name", limits.name},
          {"rate", series_json(joined(rate, std::max(smoothing, step), mean_of), 1e-9)},
          {"interval_us", (limits.interval * static_cast<int64_t>(step)).us()},
          {"allowed", values(limits.allowed)},
          {"grant", values(limits.grant)},
          {"core", values(limits.core)},
          {"limited_by", reasons_json(limits.limited_by, step)}};
}

// Jain's index of the flows that sent anything in each interval; 1 while none does.
Series fairness(const std::vector<Series>& rates) {
  Series result{"Jain fairness of the flows under way", rates[0].interval, {}};
  size_t points = 0;
  for (const Series& rate : rates) points = std::max(points, rate.values.size());
  for (size_t i = 0; i < points; ++i) {
    std::vector<double> sending;
    for (const Series& rate : rates) {
      if (i < rate.values.size() && rate.values[i] > 0) sending.push_back(rate.values[i]);
    }
    result.values.push_back(sending.empty() ? 1 : jain_index(sending));
  }
  return result;
}

// Without figures that are 0: there are many links, and most are idle.
Json link_json(const LinkResult& link) {
  const size_t arrow = link.name.find(" > ");
  Json document = {{"from", link.name.substr(0, arrow)},
                   {"to", arrow == std::string::npos ? "" : link.name.substr(arrow + 3)},
                   {"gbps", link.info.rate.gbps()}};
  const auto add = [&document](const char* name, auto value) {
    if (value != 0) document[name] = value;
  };
  add("utilisation", rounded(link.utilisation));
  add("queue_max_bytes", link.stats.queue_max_bytes);
  add("marked", link.stats.marked);
  add("trimmed", link.stats.trimmed);
  add("dropped", link.stats.dropped);
  add("paused_us", rounded(link.stats.paused.us()));
  return document;
}

void add_metric(std::map<std::string, double>& values, const RunResult& run,
                const std::string& name) {
  const auto value = metric_value(run, name);
  if (value && std::isfinite(*value)) values[name] = *value;
}

constexpr int kReportVersion = 1;
constexpr size_t kCdfPoints = 200;
constexpr size_t kSizeClasses = 10;
constexpr const char* kDirections[] = {"lower", "higher", ""};  // by Better

struct DoneFlow {
  double bytes = 0;
  double time_us = 0;
  double slowdown = 0;
};

void add_flows(const Json& flows, std::vector<DoneFlow>& done) {
  for (size_t i = 0; i < flows.at("id").size(); ++i) {
    if (flows.at("finish_us")[i].is_null()) continue;
    const double time =
        flows.at("finish_us")[i].get<double>() - flows.at("start_us")[i].get<double>();
    const double ideal = flows.at("ideal_us")[i].get<double>();
    done.push_back({flows.at("bytes")[i].get<double>(), time, ideal > 0 ? time / ideal : 1});
  }
}

// Of the flows' completion times.
Json cdf_json(const std::vector<DoneFlow>& flows) {
  if (flows.empty()) return {};
  std::vector<double> samples;
  for (const DoneFlow& flow : flows) samples.push_back(flow.time_us);
  std::ranges::sort(samples);
  const size_t points = std::min(kCdfPoints, samples.size());
  Json x = Json::array();
  Json y = Json::array();
  for (size_t i = 0; i < points; ++i) {
    // The largest sample of each of `points` equal parts: the last point is the maximum.
    const size_t rank = (i + 1) * samples.size() / points;
    x.push_back(rounded(samples[rank - 1]));
    y.push_back(rounded(static_cast<double>(rank) / static_cast<double>(samples.size())));
  }
  return {{"x", x}, {"y", y}};
}

// Slowdowns by size: classes with about the same number of flows. A size is in one class.
Json slowdowns_json(std::vector<DoneFlow> flows) {
  std::ranges::sort(flows, {}, &DoneFlow::bytes);
  Json classes = Json::array();
  for (size_t begin = 0; begin < flows.size();) {
    size_t end = std::min(begin + flows.size() / kSizeClasses + 1, flows.size());
    while (end < flows.size() && flows[end].bytes == flows[end - 1].bytes) ++end;
    std::vector<double> slowdowns;
    for (size_t i = begin; i < end; ++i) slowdowns.push_back(flows[i].slowdown);
    std::sort(slowdowns.begin(), slowdowns.end());
    classes.push_back({{"bytes_min", flows[begin].bytes},
                       {"bytes_max", flows[end - 1].bytes},
                       {"n", end - begin},
                       {"p50", rounded(quantile(slowdowns, 0.5))},
                       {"p99", rounded(quantile(slowdowns, 0.99))}});
    begin = end;
  }
  return classes;
}

// Removes what the report does not show: flows (the cell has their figures), jobs, and all queues
// but the one with the highest peak.
void keep_what_is_shown(Json& detail) {
  detail.erase("flows");
  detail.erase("jobs");
  const auto peak = [](const Json& queue) {
    const auto values = queue.at("values").get<std::vector<double>>();
    return values.empty() ? 0 : std::ranges::max(values);
  };
  Json& queues = detail.at("queues");
  const auto longest = std::ranges::max_element(queues, {}, peak);
  detail["queue"] = longest == queues.end() ? Json() : std::move(*longest);
  detail.erase("queues");
}

// The metrics that any run has; those that are shown come first.
Json metrics_json(const Experiment& experiment, const Summary& summary) {
  std::set<std::string> names;
  for (const CellSummary& cell : summary.cells) {
    for (const auto& [name, value] : cell.metrics) names.insert(name);
  }
  std::vector<std::string> order;
  for (const std::string& name : experiment.shown) {
    if (names.erase(name) > 0) order.push_back(name);
  }
  order.insert(order.end(), names.begin(), names.end());
  return json_list(order, [](const std::string& name) -> Json {
    const MetricInfo info = metric_info(name);
    return {{"name", name},
            {"label", info.label},
            {"unit", info.unit},
            {"better", kDirections[static_cast<size_t>(info.better)]}};
  });
}

}  // namespace

Json run_detail(const RunResult& run) {
  std::vector<Series> smooth;
  const size_t step = smoothing(run);
  for (const Series& series : run.rates) smooth.push_back(joined(series, step, mean_of));
  Json limits = Json::array();
  for (size_t flow = 0; flow < std::min(run.limits.size(), kFlowsExplained); ++flow) {
    limits.push_back(limit_json(run.rates[flow], run.limits[flow], step));
  }
  const auto queue_json = [](const Series& series) {
    return series_json(joined(series, fewest(series), max_of), 1);  // peaks must stay
  };
  const auto rate_json = [](const Series& series) { return series_json(series, 1e-9); };
  return {{"flows", flows_json(run.flows)},
          {"jobs", run.jobs},
          {"queues", json_list(run.queues, queue_json)},
          {"rates", json_list(smooth, rate_json)},
          {"limits", limits},
          {"fairness", smooth.empty() ? Json() : series_json(fairness(smooth), 1)},
          {"links", json_list(run.links, link_json)}};
}

std::map<std::string, double> run_metrics(const RunResult& run) {
  std::map<std::string, double> values;
  for (const Metric& metric : metrics()) {
    const std::string name(metric.name);
    if (name == kWallMetric) continue;
    add_metric(values, run, name);
    if (!metric.of_flows || run.jobs.size() < 2) continue;
    for (const std::string& job : run.jobs) add_metric(values, run, name + "@" + job);
  }
  return values;
}

Json report_data(const Experiment& experiment, const Summary& summary,
                 const std::vector<RunRecord>& records, const ResultsFolder& folder) {
  Json cells = Json::array();
  Json runs = Json::array();
  for (const CellSummary& one : summary.cells) {
    std::vector<DoneFlow> done;  // of all runs of the cell
    bool kept = false;
    for (const size_t run : one.runs) {
      const RunRecord& record = *std::ranges::lower_bound(records, run, {}, &RunRecord::index);
      Json detail = folder.read_detail(record);
      if (!detail.is_null()) {
        add_flows(detail.at("flows"), done);
        keep_what_is_shown(detail);
      }
      runs.push_back({{"index", record.index},
                      {"cell", cells.size()},
                      {"seed", record.seed},
                      {"ok", record.ok},
                      {"error", record.error},
                      {"metrics", record.metrics},
                      {"detail", kept ? Json() : std::move(detail)}});
      kept |= !runs.back()["detail"].is_null();
    }
    Json& cell = cells.emplace_back(cell_json(experiment, one));
    cell["fct_cdf_us"] = cdf_json(done);
    cell["slowdown_by_size"] = slowdowns_json(std::move(done));
  }
  const bool programs = experiment.kind == Experiment::Kind::kPrograms;
  return {{"schema_version", kReportVersion},
          {"kind", programs ? "programs" : "simulation"},
          {"name", experiment.name},
          {"description", experiment.description},
          {"baseline", experiment.arms[experiment.baseline].name},
          {"provenance", records.empty() ? Json::object() : records.front().provenance},
          {"arms", experiment.arms},
          {"factors", experiment.factors},
          {"seeds", experiment.seeds},
          {"metrics", metrics_json(experiment, summary)},
          {"shown", experiment.shown},
          {"cells", cells},
          {"runs", runs},
          {"comparisons", comparisons_json(experiment, summary)},
          {"thresholds", thresholds_json(experiment, summary)},
          {"undone", summary.undone.empty() ? "" : undone_text(summary)},
          {"identical", equals_json(experiment, summary)}};
}

}  // namespace pacecar::ab
