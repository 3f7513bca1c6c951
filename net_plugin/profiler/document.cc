#include "net_plugin/profiler/document.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace pacecar::profiler {
namespace {

using Json = nlohmann::json;

constexpr int kSchemaVersion = 1;

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

}  // namespace pacecar::profiler
