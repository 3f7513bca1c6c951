// When flows arrive that wait for one another and share links by max-min. Time advances from event
// to event; between two events rates are constant. Times in seconds, rates in bytes per second.
// Pure.
//
//   ready --delay--> sends --bytes at its rate--> drained --there--> received --back--> sent
//
// `sent` is when the sender has the last acknowledgement.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "net_plugin/predict/max_min.h"

namespace pacecar::predict {

// What the time is spent on.
enum class Cause : uint8_t { kLatency, kNvlink, kNicOut, kNicIn, kUplink, kDownlink, kProtocol };
inline constexpr size_t kCauses = 7;
std::string_view name_of(Cause cause);  // "NIC, receiving"
constexpr bool in_core(Cause cause) { return cause == Cause::kUplink || cause == Cause::kDownlink; }

struct Link {
  double rate = 0;
  Cause cause = Cause::kNicOut;
};

struct Flow {
  Route route;
  double bytes = 0;        // on the wire
  double delay_s = 0;      // before the first byte leaves
  double there_s = 0;      // from the last byte sent to the last byte received
  double back_s = 0;       // of the last acknowledgement
  double packet_s = 0;     // of a full packet on a link
  double tolerated_s = 0;  // delay in the core up to which it keeps its rate; 0: it is brief
};

class FlowSet {
 public:
  uint32_t add(const Flow& flow);
  // `flow` waits until `first` is drained, received or sent.
  void after_drained(uint32_t flow, uint32_t first) { edges_.push_back({first * 3, flow}); }
  void after_received(uint32_t flow, uint32_t first) { edges_.push_back({first * 3 + 1, flow}); }
  void after_sent(uint32_t flow, uint32_t first) { edges_.push_back({first * 3 + 2, flow}); }

  uint32_t size() const { return static_cast<uint32_t>(flows_.size()); }

 private:
  friend class FluidRun;
  struct Edge {
    uint32_t event;  // 3 x the number of a flow + which of its events (FluidRun::What)
    uint32_t flow;   // waits for the event
  };
  std::vector<Flow> flows_;
  std::vector<Edge> edges_;
};

using Terms = std::array<double, kCauses>;  // seconds by cause

struct FlowTimes {
  double ready_s = 0;
  double received_s = 0;
  uint32_t released = kNoEvent;            // the last of the events that it waited for
  std::array<float, kCauses> limited_s{};  // while it sent, by what its rate was limited

  static constexpr uint32_t kNoEvent = ~0U;
};

// The times by flow.
std::vector<FlowTimes> run_fluid(const FlowSet& set, std::span<const Link> links);

// What the time until `flow` was received was spent on, along the chain of flows that waited for
// one another. The sum of the terms is that time.
Terms terms_until(std::span<const FlowTimes> times, uint32_t flow);

}  // namespace pacecar::predict
