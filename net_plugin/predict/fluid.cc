#include "net_plugin/predict/fluid.h"

#include <algorithm>
#include <queue>
#include <tuple>
#include <utility>

#include "transport/base/prng.h"

namespace pacecar::predict {
namespace {

// In the core of a network no receiver divides the links: each sender learns by itself how much
// they carry. So shares are uneven, and a queue persists.

// Half of the range of long flows' shares, relative to their mean, as seen in the simulator.
constexpr double kSpread = 0.3;
// The mean delay over the tolerated delay: the queue swings between 0 and the tolerated delay.
constexpr double kMean = 0.5;
// A slow flow tolerates (line rate / rate)^2 / 2 times the delay, at most this many times
// (cc/pace/core_limit).
constexpr double kMostPatience = 3;

// The weight of a flow at a full link of the core. The mean is 1; equal numbers have equal weights.
double uneven_weight(uint32_t flow) {
  constexpr uint64_t kSteps = 1 << 20;
  const double part = static_cast<double>(Prng(flow).below(kSteps)) / kSteps;
  return 1 + kSpread * (2 * part - 1);
}

// How long a packet waits at each link of the core. `links` must outlive it.
class CoreQueues {
 public:
  explicit CoreQueues(std::span<const Link> links) : links_(links), queues_(links.size()) {
    for (uint32_t i = 0; i < links.size(); ++i) {
      if (in_core(links[i].cause)) core_.push_back(i);
    }
  }

  // Starts an update: a call of add() follows for each flow that sends.
  void begin() {
    for (const uint32_t link : core_) queues_[link] = {};
  }

  void add(const Flow& flow, const Allotment& share) {
    if (flow.tolerated_s == 0) return;
    const double slowness = flow.route.rate_max / share.rate;
    for (const Route::Use& use : flow.route.all()) {
      if (!use.limits || !in_core(links_[use.link].cause)) continue;
      Queue& queue = queues_[use.link];
      const bool full = share.limit == use.link;
      const double patience = full ? std::clamp(slowness * slowness / 2, 1.0, kMostPatience) : 1;
      queue.used += share.rate * use.load;
      queue.packet_s = flow.packet_s;
      queue.tolerated_s = std::max(queue.tolerated_s, flow.tolerated_s * patience);
      queue.full |= full;
    }
  }

  // Sum over a route's links. A full link has the queue that its flows tolerate. At other links
  // packets wait for others that arrive together: at load r, for r / 2 (1 - r) packets (M/D/1).
  double delay_s(const Route& route) const {
    double delay = 0;
    for (const Route::Use& use : route.all()) {
      const Queue& queue = queues_[use.link];
      if (!use.limits || queue.used == 0) continue;
      const double mean_s = kMean * queue.tolerated_s;
      const double left = std::max(links_[use.link].rate - queue.used, 0.0);
      const bool by_chance = !queue.full && queue.packet_s * queue.used < mean_s * 2 * left;
      delay += by_chance ? queue.packet_s * queue.used / (2 * left) : mean_s;
    }
    return delay;
  }

 private:
  struct Queue {
    double used = 0;         // bytes per second of flows that tolerate a delay
    double packet_s = 0;     // of these flows
    double tolerated_s = 0;  // the longest delay that one of them tolerates
    bool full = false;       // it limits one of these flows
  };

  std::span<const Link> links_;
  std::vector<uint32_t> core_;  // the links of the core
  std::vector<Queue> queues_;   // by link
};

}  // namespace

void MaxMin::add_weights(std::span<const Route> flows) {
  for (const Route& route : flows) {
    for (const Route::Use& use : route.all()) {
      State& link = states_[use.link];
      if (link.solved != solves_) {
        touched_.push_back(use.link);
        link = {.left = links_[use.link].rate, .solved = solves_};
      }
      link.growing += use.limits;
      link.weight += use.load * use.weight;
    }
  }
}

double MaxMin::lowest_level(std::span<const Route> flows) const {
  double lowest = std::numeric_limits<double>::infinity();
  for (const uint32_t touched : touched_) {
    const State& link = states_[touched];
    if (link.growing > 0) lowest = std::min(lowest, link.left / link.weight);
  }
  for (const uint32_t i : growing_) lowest = std::min(lowest, flows[i].rate_max);
  return lowest;
}

void MaxMin::freeze(const Route& route, double rate) {
  for (const Route::Use& use : route.all()) {
    State& link = states_[use.link];
    link.left = std::max(link.left - rate * use.load, 0.0);
    link.weight -= use.load * use.weight;
    link.growing -= use.limits;
  }
}

void MaxMin::solve(std::span<const Route> flows, std::span<Allotment> found) {
  touched_.clear();
  ++solves_;
  growing_.resize(flows.size());
  for (uint32_t i = 0; i < flows.size(); ++i) growing_[i] = i;
  add_weights(flows);
  // The tightest links fill first; the rates of their flows are final.
  constexpr double kSlack = 1 + 1e-9;
  while (!growing_.empty()) {
    const double lowest = lowest_level(flows);
    const double full = lowest * kSlack;
    size_t frozen = 0;
    for (const uint32_t i : growing_) {
      found[i] = {flows[i].rate_max <= full ? lowest : -1, kNoLink};
      for (const Route::Use& use : flows[i].all()) {
        const State& link = states_[use.link];
        if (use.limits && link.left <= full * link.weight)
          found[i] = {lowest * use.weight, use.link};
      }
      if (found[i].rate >= 0) ++frozen;
    }
    if (frozen == 0) break;  // nothing limits the flows that are left
    std::erase_if(growing_, [&](uint32_t i) {
      if (found[i].rate < 0) return false;
      freeze(flows[i], found[i].rate);
      return true;
    });
  }
  for (const uint32_t i : growing_) found[i] = {flows[i].rate_max, kNoLink};
}

std::string_view name_of(Cause cause) {
  constexpr std::array<std::string_view, kCauses> kNames{
      "latency",        "NVLink",           "NIC, sending", "NIC, receiving",
      "leaf's uplinks", "leaf's downlinks", "protocol"};
  return kNames[static_cast<size_t>(cause)];
}

uint32_t FlowSet::add(const Flow& flow) {
  flows_.push_back(flow);
  return static_cast<uint32_t>(flows_.size() - 1);
}

class FluidRun {
 public:
  FluidRun(const FlowSet& set, std::span<const Link> links)
      : set_(set),
        links_(links),
        solver_(links),
        core_(links),
        edges_(set.edges_),
        states_(set.flows_.size()),
        times_(set.flows_.size()) {
    std::ranges::stable_sort(edges_, {}, &FlowSet::Edge::event);
    for (const auto& edge : edges_) ++states_[edge.flow].missing;
  }

  std::vector<FlowTimes> run() {
    for (uint32_t i = 0; i < states_.size(); ++i) {
      if (states_[i].missing == 0) begin(i);
    }
    while (!events_.empty() || !active_.empty()) {
      share();
      advance();
    }
    return std::move(times_);
  }

 private:
  enum What : uint8_t { kDrained, kReceived, kSent, kSends };  // but for the last as in Edge::event
  struct Event {
    double time;
    uint32_t flow;
    What what;
    bool operator>(const Event& other) const {
      return std::tie(time, flow, what) > std::tie(other.time, other.flow, other.what);
    }
  };
  struct State {
    uint32_t missing = 0;  // events that it still waits for
    double left = 0;       // bytes
  };

  std::span<const FlowSet::Edge> waiting_for(uint32_t event) const {
    return {std::ranges::lower_bound(edges_, event, {}, &FlowSet::Edge::event),
            std::ranges::lower_bound(edges_, event + 1, {}, &FlowSet::Edge::event)};
  }

  void begin(uint32_t flow) {
    times_[flow].ready_s = now_;
    states_[flow].left = set_.flows_[flow].bytes;
    events_.push({now_ + set_.flows_[flow].delay_s, flow, kSends});
  }

  void share() {
    if (!changed_) return;
    changed_ = false;
    found_.resize(active_.size());
    solver_.solve(routes_, found_);
    core_.begin();
    for (size_t i = 0; i < active_.size(); ++i) core_.add(set_.flows_[active_[i]], found_[i]);
  }

  // Goes to the next event, and handles all events of that time.
  void advance() {
    double next = events_.empty() ? std::numeric_limits<double>::infinity() : events_.top().time;
    for (size_t i = 0; i < active_.size(); ++i) {
      next = std::min(next, now_ + states_[active_[i]].left / found_[i].rate);
    }
    const double step = next - now_;
    now_ = next;
    // In seconds: more than late times are rounded by.
    const double same_time = std::max(1e-11, now_ * 4 * std::numeric_limits<double>::epsilon());
    size_t kept = 0;
    for (size_t i = 0; i < active_.size(); ++i) {
      const uint32_t flow = active_[i];
      const Allotment& share = found_[i];
      State& state = states_[flow];
      const Cause cause = share.limit == kNoLink ? Cause::kProtocol : links_[share.limit].cause;
      times_[flow].limited_s[static_cast<size_t>(cause)] += static_cast<float>(step);
      state.left -= share.rate * step;
      if (state.left <= share.rate * same_time) {
        drained(flow);
        continue;
      }
      active_[kept] = flow;
      routes_[kept] = routes_[i];
      found_[kept++] = share;
    }
    changed_ = changed_ || kept < active_.size();
    active_.resize(kept);
    routes_.resize(kept);
    found_.resize(kept);
    while (!events_.empty() && events_.top().time <= now_ + same_time) {
      const Event event = events_.top();
      events_.pop();
      handle(event);
    }
  }

  void drained(uint32_t flow) {
    const Flow& done = set_.flows_[flow];
    const double received_s = now_ + done.there_s + core_.delay_s(done.route);
    times_[flow].received_s = received_s;
    release(flow * 3 + kDrained);
    for (const auto& [what, time] :
         {std::pair(kReceived, received_s), {kSent, received_s + done.back_s}}) {
      if (!waiting_for(flow * 3 + what).empty()) events_.push({time, flow, what});
    }
  }

  void handle(const Event& event) {
    if (event.what != kSends) return release(event.flow * 3 + event.what);
    active_.push_back(event.flow);
    routes_.push_back(weighted_route(event.flow));
    changed_ = true;
  }

  Route weighted_route(uint32_t flow) const {
    Route route = set_.flows_[flow].route;
    const auto weight = static_cast<float>(uneven_weight(flow));
    for (uint32_t i = 0; i < route.count; ++i) {
      if (in_core(links_[route.uses[i].link].cause)) route.uses[i].weight = weight;
    }
    return route;
  }

  void release(uint32_t event) {
    for (const auto& edge : waiting_for(event)) {
      times_[edge.flow].released = event;
      if (--states_[edge.flow].missing == 0) begin(edge.flow);
    }
  }

  const FlowSet& set_;
  std::span<const Link> links_;
  MaxMin solver_;
  CoreQueues core_;
  std::vector<FlowSet::Edge> edges_;  // by event
  std::vector<State> states_;
  std::vector<FlowTimes> times_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<uint32_t> active_;
  std::vector<Route> routes_;
  std::vector<Allotment> found_;
  bool changed_ = true;
  double now_ = 0;
};

std::vector<FlowTimes> run_fluid(const FlowSet& set, std::span<const Link> links) {
  return FluidRun(set, links).run();
}

Terms terms_until(std::span<const FlowTimes> times, uint32_t flow) {
  Terms terms{};
  double until = times[flow].received_s;
  for (;;) {
    const FlowTimes& each = times[flow];
    double latency = until - each.ready_s;
    for (size_t i = 0; i < kCauses; ++i) {
      terms[i] += each.limited_s[i];
      latency -= each.limited_s[i];
    }
    terms[static_cast<size_t>(Cause::kLatency)] += latency;
    if (each.released == FlowTimes::kNoEvent) return terms;
    until = each.ready_s;
    flow = each.released / 3;
  }
}

}  // namespace pacecar::predict
