#include "bench/sim/result_json.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/sim/counters.h"
#include "bench/sim/metrics.h"

namespace pacecar {
namespace {

using Json = nlohmann::json;

Json time_or_null(Duration time) {
  return time == Duration::max() ? Json(nullptr) : Json(time.ns());
}

Json number_or_null(double number) { return std::isfinite(number) ? Json(number) : Json(nullptr); }

Json flow_json(const FlowResult& flow) {
  return {{"id", flow.id},
          {"source", flow.source},
          {"destination", flow.destination},
          {"job", flow.job},
          {"bytes", flow.bytes},
          {"start_ns", time_or_null(flow.start)},
          {"received_ns", time_or_null(flow.received)},
          {"finish_ns", time_or_null(flow.finish)},
          {"ideal_ns", flow.ideal.ns()}};
}

Json link_json(const LinkResult& link) {
  return {{"link", link.link},
          {"name", link.name},
          {"from", link.info.from},
          {"to", link.info.to},
          {"rate_bps", link.info.rate.bps()},
          {"delay_ns", link.info.delay.ns()},
          {"utilisation", link.utilisation},
          {"sent_bytes", link.stats.sent_bytes},
          {"sent_packets", link.stats.sent_packets},
          {"queue_max_bytes", link.stats.queue_max_bytes},
          {"marked", link.stats.marked},
          {"trimmed", link.stats.trimmed},
          {"dropped", link.stats.dropped},
          {"paused_ns", link.stats.paused.ns()}};
}

Json series_json(const std::vector<Series>& all) {
  Json list = Json::array();
  for (const Series& series : all) {
    list.push_back(
        {{"name", series.name}, {"interval_ns", series.interval.ns()}, {"values", series.values}});
  }
  return list;
}

// Only the changes of reason: there are few.
Json reasons_json(const std::vector<LimitedBy>& reasons) {
  Json list = Json::array();
  for (size_t i = 0; i < reasons.size(); ++i) {
    if (i > 0 && reasons[i] == reasons[i - 1]) continue;
    list.push_back({{"sample", i}, {"reason", to_string(reasons[i])}});
  }
  return list;
}

Json limits_json(const std::vector<LimitSeries>& all) {
  Json list = Json::array();
  for (const LimitSeries& series : all) {
    list.push_back({{"name", series.name},
                    {"interval_ns", series.interval.ns()},
                    {"rate_bps", series.allowed},
                    {"grant_bps", series.grant},
                    {"core_bps", series.core},
                    {"limited_by", reasons_json(series.limited_by)}});
  }
  return list;
}

template <typename Counters>
Json counters_json(const Counters& counters, std::span<const CounterField<Counters>> fields) {
  Json values = Json::object();
  for (const auto& field : fields) values[std::string(field.name)] = counters.*field.value;
  return values;
}

Json fabric_json(const FabricCounters& fabric) {
  Json values = counters_json(fabric, fabric_counter_fields());
  values["in_flight"] = fabric.in_flight;
  for (size_t i = 0; i < fabric.dropped.size(); ++i) {
    values["dropped"][std::string(drop_names()[i])] = fabric.dropped[i];
  }
  return values;
}

Json metrics_json(const RunResult& run) {
  Json values = Json::object();
  for (const Metric& metric : metrics()) {
    if (metric.name != "wall_s") values[metric.name] = number_or_null(metric.value(run));
  }
  return values;
}

// Of each job, when there are several.
Json jobs_json(const RunResult& run) {
  Json jobs = Json::array();
  for (const std::string& name : run.jobs) {
    Json values = Json::object();
    for (const Metric& metric : metrics()) {
      if (run.jobs.size() == 1 || !metric.of_flows) continue;
      const auto value = metric_value(run, fmt::format("{}@{}", metric.name, name));
      values[metric.name] = number_or_null(value.value());
    }
    jobs.push_back({{"name", name}, {"metrics", values}});
  }
  return jobs;
}

}  // namespace

Json to_json(const RunResult& run) {
  Json flows = Json::array();
  for (const FlowResult& flow : run.flows) flows.push_back(flow_json(flow));
  Json links = Json::array();
  for (const LinkResult& link : run.links) links.push_back(link_json(link));
  return {{"schema_version", kRunSchemaVersion},
          {"name", run.name},
          {"congestion_control", run.congestion_control},
          {"seed", run.seed},
          {"processes", run.processes},
          {"complete", run.complete},
          {"duration_ns", run.duration.ns()},
          {"metrics", metrics_json(run)},
          {"jobs", jobs_json(run)},
          {"nics", counters_json(run.nics, nic_counter_fields())},
          {"fabric", fabric_json(run.fabric)},
          {"flows", flows},
          {"links", links},
          {"queues_bytes", series_json(run.queues)},
          {"rates_bps", series_json(run.rates)},
          {"limits", limits_json(run.limits)},
          {"events", run.events},
          {"trace_hash", fmt::format("{:016x}", run.trace_hash)},
          {"wall_s", run.wall_seconds}};
}

}  // namespace pacecar
