// When flows arrive that wait for one another and share links by max-min. Time advances from event
// to event; between two events rates are constant. Units: seconds, bytes per second. Pure.
//   ready --delay--> sends --bytes at its rate--> drained --there--> received --back--> sent
// `sent` is when the sender has the last acknowledgement.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

namespace pacecar::predict {

inline constexpr uint32_t kNoLink = ~0U;

// A flow's links. It takes its rate times `load` of each: one flow can represent many equal ones.
struct Route {
  struct Use {
    uint32_t link = kNoLink;
    float load = 1;
    float weight = 1;    // of its share of the link, relative to other flows
    bool limits = true;  // the flow when the link is full; false for acknowledgements
  };
  std::array<Use, 8> uses;
  uint32_t count = 0;
  double rate_max = std::numeric_limits<double>::infinity();

  void add(uint32_t link, double load = 1) { uses[count++] = {link, static_cast<float>(load)}; }
  void add_acks(uint32_t link, double load) {
    uses[count++] = {.link = link, .load = static_cast<float>(load), .limits = false};
  }
  std::span<const Use> all() const { return {uses.data(), count}; }
};

struct Allotment {
  double rate = 0;
  uint32_t limit = kNoLink;  // the full link that limits it; kNoLink: its `rate_max` does
};

// What the time is spent on.
enum class Cause : uint8_t { kLatency, kNvlink, kNicOut, kNicIn, kUplink, kDownlink, kProtocol };
inline constexpr size_t kCauses = 7;
std::string_view name_of(Cause cause);  // "NIC, receiving"
constexpr bool in_core(Cause cause) { return cause == Cause::kUplink || cause == Cause::kDownlink; }

struct Link {
  double rate = 0;
  Cause cause = Cause::kNicOut;
};

// Max-min fair rates of flows over links, by progressive filling: no flow can have more unless a
// flow with no more than it gets less. Keeps its memory from one call to the next.
class MaxMin {
 public:
  explicit MaxMin(std::span<const Link> links) : links_(links), states_(links.size()) {}

  // Fills `found` by flow. A flow without links has its `rate_max`.
  void solve(std::span<const Route> flows, std::span<Allotment> found);

 private:
  struct State {
    double left = 0;       // of its rate
    double weight = 0;     // sum of the weighted loads of flows that still grow
    uint32_t growing = 0;  // flows that it limits
    uint32_t solved = 0;   // the last solve() that used it
  };
  void add_weights(std::span<const Route> flows);
  double lowest_level(std::span<const Route> flows) const;
  void freeze(const Route& route, double rate);

  std::span<const Link> links_;  // must outlive it
  std::vector<State> states_;    // by link
  std::vector<uint32_t> touched_;
  std::vector<uint32_t> growing_;
  uint32_t solves_ = 0;
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
  std::array<float, kCauses> limited_s{};  // sending time, by the cause that limited its rate

  static constexpr uint32_t kNoEvent = ~0U;
};

std::vector<FlowTimes> run_fluid(const FlowSet& set, std::span<const Link> links);

// What the time until `flow` was received was spent on, along the chain of flows that waited for
// one another. The sum of the terms is that time.
Terms terms_until(std::span<const FlowTimes> times, uint32_t flow);

}  // namespace pacecar::predict
