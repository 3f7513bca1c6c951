#include "bench/perf/end_report.h"

#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "bench/perf/clock.h"
#include "bench/perf/json_fields.h"
#include "bench/perf/limits_seen.h"

namespace pacecar::perf {
namespace {

// The counts, in one place for the difference and for both directions of JSON.
struct Counter {
  const char* key;
  uint64_t EndReport::*report;
  uint64_t Statistics::*statistic;
};

constexpr std::array kCounters = {
    Counter{"packets_sent", &EndReport::packets_sent, &Statistics::packets_sent},
    Counter{"packets_received", &EndReport::packets_received, &Statistics::packets_received},
    Counter{"packets_retransmitted", &EndReport::packets_retransmitted,
            &Statistics::packets_retransmitted},
    Counter{"timeouts", &EndReport::timeouts, &Statistics::timeouts},
    Counter{"duplicates", &EndReport::duplicates, &Statistics::duplicates},
    Counter{"rejected", &EndReport::rejected, &Statistics::rejected},
    Counter{"marked_packets", &EndReport::marked_packets, &Statistics::marked_packets},
};

constexpr double kMaxNumber = 1e18;

}  // namespace

EndMeter::EndMeter(const Context& context, size_t nic, const Streams& streams)
    : context_(context),
      nic_(nic),
      streams_(streams),
      before_(context.statistics(nic)),
      cpu_before_(process_cpu_time()) {}

EndReport EndMeter::finish() const {
  EndReport report;
  report.cpu_s = (process_cpu_time() - cpu_before_).seconds();
  const Statistics after = context_.statistics(nic_);
  for (const Counter& counter : kCounters) {
    report.*counter.report = after.*counter.statistic - before_.*counter.statistic;
  }
  report.congestion_control = after.congestion_control;
  if (!streams_.senders.empty()) report.flow = streams_.senders.front().flow();
  return report;
}

nlohmann::json to_json(const EndReport& report) {
  nlohmann::json counters;
  for (const Counter& counter : kCounters) counters[counter.key] = report.*counter.report;
  nlohmann::json control = {{"name", report.congestion_control}};
  if (report.flow) control.update(to_json(*report.flow));
  return {{"cpu_s", report.cpu_s},
          {"counters", std::move(counters)},
          {"congestion_control", std::move(control)}};
}

Result<EndReport> end_report_from_json(const nlohmann::json& object) {
  EndReport report;
  const auto cpu = number_field(object, "cpu_s", 0, kMaxNumber);
  if (!cpu) return tl::unexpected(cpu.error());
  report.cpu_s = *cpu;
  const nlohmann::json counters = object.value("counters", nlohmann::json());
  for (const Counter& counter : kCounters) {
    const auto count =
        unsigned_field(counters, counter.key, 0, std::numeric_limits<uint64_t>::max());
    if (!count) return tl::unexpected(count.error());
    report.*counter.report = *count;
  }
  const nlohmann::json control = object.value("congestion_control", nlohmann::json());
  const auto name = text_field(control, "name", 64);
  if (!name) return tl::unexpected(name.error());
  report.congestion_control = *name;
  if (!control.contains("limited_by")) return report;
  const auto flow = flow_view_from_json(control);
  if (!flow) return tl::unexpected(flow.error());
  report.flow = *flow;
  return report;
}

}  // namespace pacecar::perf
