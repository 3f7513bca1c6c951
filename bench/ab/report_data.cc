#include "bench/ab/report_data.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/ab/metric_info.h"
#include "bench/ab/run_detail.h"

namespace pacecar::ab {
namespace {

using Json = nlohmann::json;

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

// Slowdowns by size: classes with about the same number of flows. Flows of one size are in one
// class.
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

class Builder {
 public:
  Builder(const Experiment& experiment, const Summary& summary,
          const std::vector<RunRecord>& records, const ResultsFolder& folder)
      : experiment_(experiment), summary_(summary), folder_(folder) {
    for (const RunRecord& record : records) records_[record.index] = &record;
  }

  void add_cell(const CellSummary& summary) {
    Json cell = cell_json(experiment_, summary);
    const size_t number = cells_.size();
    std::vector<DoneFlow> done;  // of all runs of the cell
    bool kept = false;
    for (const size_t run : summary.runs) {
      const RunRecord& record = *records_.at(run);
      Json detail = folder_.read_detail(record);
      if (!detail.is_null()) {
        add_flows(detail.at("flows"), done);
        keep_what_is_shown(detail);
      }
      add_run(record, number, kept ? Json() : detail);
      kept = kept || !detail.is_null();
    }
    cell["fct_cdf_us"] = cdf_json(done);
    cell["slowdown_by_size"] = slowdowns_json(std::move(done));
    cells_.push_back(std::move(cell));
  }

  Json result() {
    const bool programs = experiment_.kind == Experiment::Kind::kPrograms;
    return {
        {"schema_version", kReportVersion},
        {"kind", programs ? "programs" : "simulation"},
        {"name", experiment_.name},
        {"description", experiment_.description},
        {"baseline", experiment_.arms[experiment_.baseline].name},
        {"provenance", records_.empty() ? Json::object() : records_.begin()->second->provenance},
        {"arms", experiment_.arms},
        {"factors", experiment_.factors},
        {"seeds", experiment_.seeds},
        {"metrics", metrics()},
        {"shown", experiment_.shown},
        {"cells", cells_},
        {"runs", runs_},
        {"comparisons", comparisons_json(experiment_, summary_)},
        {"thresholds", thresholds_json(experiment_, summary_)}};
  }

 private:
  void add_run(const RunRecord& record, size_t cell, Json detail) {
    runs_.push_back({{"index", record.index},
                     {"cell", cell},
                     {"seed", record.seed},
                     {"ok", record.ok},
                     {"error", record.error},
                     {"metrics", record.metrics},
                     {"detail", std::move(detail)}});
  }

  // The metrics that any run has; those of `shown` come first.
  Json metrics() const {
    std::set<std::string> names;
    for (const CellSummary& cell : summary_.cells) {
      for (const auto& [name, value] : cell.metrics) names.insert(name);
    }
    std::vector<std::string> order;
    for (const std::string& name : experiment_.shown) {
      if (names.erase(name) > 0) order.push_back(name);
    }
    order.insert(order.end(), names.begin(), names.end());
    Json metrics = Json::array();
    for (const std::string& name : order) {
      const MetricInfo info = metric_info(name);
      metrics.push_back({{"name", name},
                         {"label", info.label},
                         {"unit", info.unit},
                         {"better", kDirections[static_cast<size_t>(info.better)]}});
    }
    return metrics;
  }

  const Experiment& experiment_;
  const Summary& summary_;
  const ResultsFolder& folder_;
  std::map<size_t, const RunRecord*> records_;
  Json cells_ = Json::array();
  Json runs_ = Json::array();
};

}  // namespace

Json report_data(const Experiment& experiment, const Summary& summary,
                 const std::vector<RunRecord>& records, const ResultsFolder& folder) {
  Builder builder(experiment, summary, records, folder);
  for (const CellSummary& cell : summary.cells) builder.add_cell(cell);
  return builder.result();
}

}  // namespace pacecar::ab
