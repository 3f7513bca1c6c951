#include "net_plugin/profiler/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

namespace pacecar::profiler {
namespace {

using Json = nlohmann::json;

constexpr int kSchemaVersion = 1;
constexpr double kNano = 1e-9;

template <typename... Numbers>
Json row(Numbers... numbers) {
  return Json::array({numbers...});
}

// Each event as an array of numbers, in the order that README.md gives.
Json json_of(const std::vector<Event>& events) {
  Json list = Json::array();
  for (const auto& [what, id, parent, start, stop, moment, first, bytes, waits] : events) {
    list.push_back(row(id, what.kind, what.operation, what.datatype, what.channel,
                       what.sending ? 1 : 0, what.peer, what.number, what.amount, parent, start,
                       stop, moment, first, bytes, waits[1], waits[2], waits[3], waits[4],
                       what.detailed ? 1 : 0));
  }
  return list;
}

Json json_of(const Totals& totals) {
  constexpr std::array<const char*, kSums> kNames = {
      "collectives", "point_to_points", "bytes_sent", "bytes_received", "busy_ns",
      "gpu_ns",      "peer_ns",         "network_ns", "flush_ns"};
  Json sums;
  for (size_t i = 0; i < kSums; ++i) sums[kNames[i]] = totals[i];
  return sums;
}

Json json_of(const Record& record) {
  const Identity who = record.identity();
  return {{"communicator", fmt::format("{:016x}", who.communicator)},
          {"rank", who.rank},
          {"ranks", who.ranks},
          {"nodes", who.nodes},
          {"totals", json_of(record.totals())},
          {"operations", json_of(record.operations())},
          {"steps", json_of(record.steps())}};
}

}  // namespace

std::string profile_document(const Recorder& recorder) {
  Json communicators = Json::array();
  for (const auto& record : recorder.records()) communicators.push_back(json_of(*record));
  return Json{{"schema_version", kSchemaVersion},
              {"now_ns", recorder.now_ns()},
              {"communicators", std::move(communicators)}}
      .dump();
}

std::string profile_metrics(const Recorder& recorder) {
  const auto records = recorder.records();
  if (records.empty()) return {};
  Totals sum{};
  for (const auto& record : records) {
    std::ranges::transform(sum, record->totals(), sum.begin(), std::plus<>());
  }
  const auto seconds = [&](Sum ns) { return static_cast<double>(sum[ns]) * kNano; };
  return fmt::format(
      R"(# HELP pacecar_collectives_total Collectives of the open communicators.
# TYPE pacecar_collectives_total counter
pacecar_collectives_total {}
# HELP pacecar_collective_sent_bytes_total Bytes that they have sent.
# TYPE pacecar_collective_sent_bytes_total counter
pacecar_collective_sent_bytes_total {}
# HELP pacecar_collective_received_bytes_total Bytes that they have received.
# TYPE pacecar_collective_received_bytes_total counter
pacecar_collective_received_bytes_total {}
# HELP pacecar_collective_seconds_total Time in them, summed over their channels.
# TYPE pacecar_collective_seconds_total counter
pacecar_collective_seconds_total {}
# HELP pacecar_collective_wait_seconds_total Time that their messages have waited, by what for.
# TYPE pacecar_collective_wait_seconds_total counter
pacecar_collective_wait_seconds_total{{for="gpu"}} {}
pacecar_collective_wait_seconds_total{{for="peer"}} {}
pacecar_collective_wait_seconds_total{{for="network"}} {}
pacecar_collective_wait_seconds_total{{for="flush"}} {}
)",
      sum[kCollectives], sum[kBytesSent], sum[kBytesReceived], seconds(kBusyNs), seconds(kGpuNs),
      seconds(kPeerNs), seconds(kNetworkNs), seconds(kFlushNs));
}

}  // namespace pacecar::profiler
