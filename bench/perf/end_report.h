// One end's costs and counters during a phase.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/perf/streams.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/units.h"

namespace pacecar::perf {

struct EndReport {
  double cpu_s = 0;  // of the whole process, engine included
  // Counts during the phase.
  uint64_t packets_sent = 0;
  uint64_t packets_received = 0;
  uint64_t packets_retransmitted = 0;
  uint64_t timeouts = 0;
  uint64_t duplicates = 0;
  uint64_t rejected = 0;
  uint64_t marked_packets = 0;
  // The device's own counters that changed meanwhile.
  std::vector<DeviceCounter> device_counters;
  std::string congestion_control;
  // Of a sending end: its flow's view at the end (all streams of a test share one flow).
  std::optional<FlowView> flow;
};

// Takes the difference between its construction and finish().
class EndMeter {
 public:
  // All must outlive the meter.
  EndMeter(const Context& context, size_t nic, const Streams& streams);
  EndReport finish() const;

 private:
  const Context& context_;
  size_t nic_;
  const Streams& streams_;
  Statistics before_;
  Duration cpu_before_;
};

nlohmann::json to_json(const EndReport& report);
// Errors: kPeer when a member is missing or impossible.
Result<EndReport> end_report_from_json(const nlohmann::json& object);

}  // namespace pacecar::perf
