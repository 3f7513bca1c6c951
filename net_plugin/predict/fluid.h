// Flows that wait for one another, over links that they share by max-min: when is each there? Time
// goes from event to event; between two of them rates are constant. Pure.
//
//   ready --delay--> sends --bytes at its rate--> drained --there--> received --back--> sent
//
// `sent` is when the sender knows that it is done.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "net_plugin/predict/max_min.h"

namespace pacecar::predict {

// What takes the time.
enum class Cause : uint8_t { kLatency, kNvlink, kNicOut, kNicIn, kUplink, kDownlink, kProtocol };
inline constexpr size_t kCauses = 7;
std::string_view name_of(Cause cause);  // "NIC, receiving"
constexpr bool in_core(Cause cause) { return cause == Cause::kUplink || cause == Cause::kDownlink; }

struct Link {
  double rate = 0;  // bytes per second
  Cause cause = Cause::kNicOut;
};

struct Flow {
  Route route;
  double bytes = 0;     // on the wire
  double delay_s = 0;   // before the first byte leaves
  double there_s = 0;   // from the last byte sent to the last received
  double back_s = 0;    // until the sender knows
  double packet_s = 0;  // that a full packet of it keeps a link
  // The delay in the core for which it does not slow down; 0: it is gone before it could.
  double tolerated_s = 0;
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
    uint32_t event;  // three times the number of a flow, and which of its events
    uint32_t flow;   // that waits for it
  };
  std::vector<Flow> flows_;
  std::vector<Edge> edges_;
};

using Terms = std::array<double, kCauses>;  // seconds by cause

struct FlowTimes {
  double ready_s = 0;
  double drained_s = 0;
  double received_s = 0;
  double sent_s = 0;
  uint32_t released = kNoEvent;            // the event that it waited for last
  std::array<float, kCauses> limited_s{};  // while it sent, by what its rate was limited

  static constexpr uint32_t kNoEvent = ~0U;
};

// By flow.
std::vector<FlowTimes> run_fluid(const FlowSet& set, std::span<const Link> links);

// What took the time until `flow` was received: along the chain of flows, each of which waited for
// the one before. Their sum is that time.
Terms terms_until(std::span<const FlowTimes> times, uint32_t flow);

}  // namespace pacecar::predict
