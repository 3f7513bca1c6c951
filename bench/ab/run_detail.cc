#include "bench/ab/run_detail.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "bench/sim/counters.h"
#include "bench/sim/metrics.h"

namespace pacecar::ab {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kPoints = 500;                   // of a series: more than a plot has pixels for
constexpr std::string_view kWallTime = "wall_s";  // has a place of its own in the record

double rounded(double value) { return std::round(value * 1000) / 1000; }

Json time_json(Duration time) { return time == Duration::max() ? Json() : Json(time.us()); }

Json flows_json(const std::vector<FlowResult>& flows) {
  Json columns = {
      {"id", Json::array()},        {"source", Json::array()},      {"destination", Json::array()},
      {"job", Json::array()},       {"bytes", Json::array()},       {"start_us", Json::array()},
      {"finish_us", Json::array()}, {"received_us", Json::array()}, {"ideal_us", Json::array()}};
  for (const FlowResult& flow : flows) {
    columns["id"].push_back(flow.id);
    columns["source"].push_back(flow.source);
    columns["destination"].push_back(flow.destination);
    columns["job"].push_back(flow.job);
    columns["bytes"].push_back(flow.bytes);
    columns["start_us"].push_back(time_json(flow.start));
    columns["finish_us"].push_back(time_json(flow.finish));
    columns["received_us"].push_back(time_json(flow.received));
    columns["ideal_us"].push_back(time_json(flow.ideal));
  }
  return columns;
}

double mean_of(const double* first, const double* last) {
  return std::accumulate(first, last, 0.0) / static_cast<double>(last - first);
}

double max_of(const double* first, const double* last) { return *std::max_element(first, last); }

// Joins neighbours by `join` until there are few enough points; peaks of queues must stay.
Json series_json(const Series& series, double scale,
                 double (*join)(const double* first, const double* last)) {
  const size_t step = (series.values.size() + kPoints - 1) / kPoints;
  Json values = Json::array();
  for (size_t i = 0; i < series.values.size(); i += step) {
    const double* first = series.values.data() + i;
    values.push_back(
        rounded(join(first, first + std::min(step, series.values.size() - i)) * scale));
  }
  return {{"name", series.name},
          {"interval_us", series.interval.us() * static_cast<double>(std::max<size_t>(step, 1))},
          {"values", values}};
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

Json link_json(const LinkResult& link) {
  const size_t arrow = link.name.find(" > ");
  return {{"from", link.name.substr(0, arrow)},
          {"to", arrow == std::string::npos ? "" : link.name.substr(arrow + 3)},
          {"gbps", link.info.rate.gbps()},
          {"utilisation", rounded(link.utilisation)},
          {"queue_max_bytes", link.stats.queue_max_bytes},
          {"marked", link.stats.marked},
          {"trimmed", link.stats.trimmed},
          {"dropped", link.stats.dropped},
          {"paused_us", rounded(link.stats.paused.us())}};
}

void add_metric(std::map<std::string, double>& values, const RunResult& run,
                const std::string& name) {
  const auto value = metric_value(run, name);
  if (value && std::isfinite(*value)) values[name] = *value;
}

}  // namespace

Json run_detail(const RunResult& run) {
  Json queues = Json::array();
  for (const Series& series : run.queues) queues.push_back(series_json(series, 1, max_of));
  Json rates = Json::array();
  for (const Series& series : run.rates) rates.push_back(series_json(series, 1e-9, mean_of));
  Json links = Json::array();
  for (const LinkResult& link : run.links) links.push_back(link_json(link));
  return {{"flows", flows_json(run.flows)},
          {"jobs", run.jobs},
          {"queues", queues},
          {"rates", rates},
          {"fairness", run.rates.empty() ? Json() : series_json(fairness(run.rates), 1, mean_of)},
          {"links", links}};
}

std::map<std::string, double> run_metrics(const RunResult& run) {
  std::map<std::string, double> values;
  for (const Metric& metric : metrics()) {
    const std::string name(metric.name);
    if (name == kWallTime) continue;
    add_metric(values, run, name);
    if (!metric.of_flows || run.jobs.size() < 2) continue;
    for (const std::string& job : run.jobs) add_metric(values, run, name + "@" + job);
  }
  return values;
}

Json run_counters(const RunResult& run) {
  Json nics = Json::object();
  for (const auto& field : nic_counter_fields()) {
    nics[std::string(field.name)] = run.nics.*field.value;
  }
  Json fabric = Json::object();
  for (const auto& field : fabric_counter_fields()) {
    fabric[std::string(field.name)] = run.fabric.*field.value;
  }
  for (size_t i = 0; i < drop_names().size(); ++i) {
    fabric["dropped"][std::string(drop_names()[i])] = run.fabric.dropped[i];
  }
  return {{"nics", nics},
          {"fabric", fabric},
          {"events", run.events},
          {"complete", run.complete},
          {"trace_hash", fmt::format("{:016x}", run.trace_hash)}};
}

}  // namespace pacecar::ab
