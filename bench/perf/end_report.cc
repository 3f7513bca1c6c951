#include "bench/perf/end_report.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "bench/perf/clock.h"
#include "bench/perf/json_fields.h"
#include "bench/perf/limits_seen.h"
#include "transport/base/return_if_error.h"

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
constexpr size_t kMaxDeviceCounters = 256;
constexpr size_t kMaxCounterName = 64;

std::vector<DeviceCounter> changed(const std::vector<DeviceCounter>& before,
                                   const std::vector<DeviceCounter>& after) {
  std::vector<DeviceCounter> differences;
  for (const DeviceCounter& counter : after) {
    const auto old = std::ranges::find(before, counter.name, &DeviceCounter::name);
    if (old == before.end() || counter.count <= old->count) continue;
    differences.push_back({counter.name, counter.count - old->count});
  }
  return differences;
}

Result<std::vector<DeviceCounter>> device_counters_from_json(const nlohmann::json& object) {
  std::vector<DeviceCounter> counters;
  if (!object.is_object() || object.size() > kMaxDeviceCounters) {
    return fail(ErrorCode::kPeer,
                "the peer sent no valid device counters: run the same version on "
                "both sides");
  }
  for (const auto& [name, value] : object.items()) {
    const nlohmann::json wrapped = {{"name", name}};
    ASSIGN_OR_RETURN(const auto text, text_field(wrapped, "name", kMaxCounterName));
    ASSIGN_OR_RETURN(const auto count,
                     unsigned_field(object, name, 0, std::numeric_limits<uint64_t>::max()));
    counters.push_back({text, count});
  }
  return counters;
}

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
  report.device_counters = changed(before_.device_counters, after.device_counters);
  report.congestion_control = after.congestion_control;
  if (!streams_.senders.empty()) report.flow = streams_.senders.front().flow();
  return report;
}

nlohmann::json to_json(const EndReport& report) {
  nlohmann::json counters;
  for (const Counter& counter : kCounters) counters[counter.key] = report.*counter.report;
  nlohmann::json device = nlohmann::json::object();
  for (const DeviceCounter& counter : report.device_counters) device[counter.name] = counter.count;
  nlohmann::json control = {{"name", report.congestion_control}};
  if (report.flow) control.update(to_json(*report.flow));
  return {{"cpu_s", report.cpu_s},
          {"counters", std::move(counters)},
          {"device_counters", std::move(device)},
          {"congestion_control", std::move(control)}};
}

Result<EndReport> end_report_from_json(const nlohmann::json& object) {
  EndReport report;
  ASSIGN_OR_RETURN(report.cpu_s, number_field(object, "cpu_s", 0, kMaxNumber));
  const nlohmann::json counters = object.value("counters", nlohmann::json());
  for (const Counter& counter : kCounters) {
    ASSIGN_OR_RETURN(report.*counter.report, unsigned_field(counters, counter.key, 0,
                                                            std::numeric_limits<uint64_t>::max()));
  }
  ASSIGN_OR_RETURN(report.device_counters,
                   device_counters_from_json(object.value("device_counters", nlohmann::json())));
  const nlohmann::json control = object.value("congestion_control", nlohmann::json());
  ASSIGN_OR_RETURN(report.congestion_control, text_field(control, "name", 64));
  if (!control.contains("limited_by")) return report;
  ASSIGN_OR_RETURN(report.flow, flow_view_from_json(control));
  return report;
}

}  // namespace pacecar::perf
