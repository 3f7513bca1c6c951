#include "bench/sim/result_json.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <utility>

#include "bench/sim/metrics.h"

namespace pacecar {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FabricCounters, sent, duplicated, corrupted, delayed, marked,
                                   trimmed, delivered, pauses)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NicCounters, data_packets_sent, data_bytes_sent,
                                   packets_retransmitted, packets_refused, timeouts, acks_sent,
                                   data_packets_received, data_bytes_received,
                                   silent_packets_received, duplicates, trimmed_packets,
                                   trimmed_in_core, marked_packets, acks_received, malformed,
                                   bad_checksum, forged, replayed, unknown_queue_pair, wrong_source,
                                   out_of_window, out_of_order, completions_full, access_errors)
static_assert(sizeof(NicCounters) == 24 * sizeof(uint64_t), "a counter is missing above");

namespace {

using Json = nlohmann::json;

constexpr const char* kDropNames[] = {"no_route", "queue_full", "inbox_full", "link_down",
                                      "loss",     "partition",  "policer"};  // by FabricDrop
static_assert(std::size(kDropNames) == static_cast<size_t>(FabricDrop::kCount));

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

Json series_json(const Series& series) {
  return {{"name", series.name}, {"interval_ns", series.interval.ns()}, {"values", series.values}};
}

// The samples at which the reason changes.
Json reasons_json(const std::vector<LimitedBy>& reasons) {
  Json list = Json::array();
  for (size_t i = 0; i < reasons.size(); ++i) {
    if (i > 0 && reasons[i] == reasons[i - 1]) continue;
    list.push_back({{"sample", i}, {"reason", to_string(reasons[i])}});
  }
  return list;
}

Json limits_json(const LimitSeries& series) {
  return {{"name", series.name},        {"interval_ns", series.interval.ns()},
          {"rate_bps", series.allowed}, {"grant_bps", series.grant},
          {"core_bps", series.core},    {"limited_by", reasons_json(series.limited_by)}};
}

Json metrics_json(const RunResult& run) {
  Json values = Json::object();
  for (const Metric& metric : metrics()) {
    if (metric.name != "wall_s") values[metric.name] = number_or_null(metric.value(run));
  }
  return values;
}

// The metrics of each job, when there are several jobs.
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

Json counters_json(const RunResult& run) {
  Json fabric = run.fabric;
  for (size_t i = 0; i < run.fabric.dropped.size(); ++i) {
    fabric["dropped"][kDropNames[i]] = run.fabric.dropped[i];
  }
  return {{"nics", run.nics},
          {"fabric", std::move(fabric)},
          {"events", run.events},
          {"complete", run.complete},
          {"trace_hash", fmt::format("{:016x}", run.trace_hash)}};
}

Json to_json(const RunResult& run) {
  Json all = {{"schema_version", kRunSchemaVersion},
              {"name", run.name},
              {"congestion_control", run.congestion_control},
              {"hosts", run.hosts},
              {"seed", run.seed},
              {"processes", run.processes},
              {"duration_ns", run.duration.ns()},
              {"metrics", metrics_json(run)},
              {"jobs", jobs_json(run)},
              {"flows", json_list(run.flows, flow_json)},
              {"links", json_list(run.links, link_json)},
              {"queues_bytes", json_list(run.queues, series_json)},
              {"rates_bps", json_list(run.rates, series_json)},
              {"limits", json_list(run.limits, limits_json)},
              {"wall_s", run.wall_seconds}};
  all.update(counters_json(run));
  all["fabric"]["in_flight"] = run.fabric.in_flight;
  return all;
}

}  // namespace pacecar
