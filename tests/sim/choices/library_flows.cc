#include "tests/sim/choices/library_flows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

namespace pacecar::predict {
namespace {

constexpr uint32_t kNobody = ~0U;
using Flows = std::vector<uint32_t>;

bool is_all_reduce(const LibraryFlows& what) { return what.operation == Operation::kAllReduce; }

double pieces_of(double bytes, Bytes chunk) {
  return std::max(1.0, std::ceil(bytes / static_cast<double>(chunk)));
}

// One channel's flows, over one NIC of each host.
class Channel {
 public:
  Channel(FlowGraph& graph, const LibraryFlows& what, uint32_t nic)
      : graph_(graph), what_(what), nic_(nic) {}

  void ring() {
    const uint32_t n = what_.hosts;
    const double share = bytes() / n;
    const double rounds = pieces_of(share, what_.costs.chunk);
    const auto steps = static_cast<uint32_t>((is_all_reduce(what_) ? 2 : 1) * (n - 1) * rounds);
    std::vector<Flows> sent(steps, Flows(n));
    for (uint32_t step = 0; step < steps; ++step) {
      for (uint32_t i = 0; i < n; ++i) {
        After after;
        if (step > 0) after.received = {sent[step - 1][(i + n - 1) % n]};
        if (step >= what_.costs.slots) after.sent = {sent[step - what_.costs.slots][i]};
        sent[step][i] = add(after, i, (i + 1) % n, share / rounds);
      }
    }
  }

  // In pieces from host to host.
  void chain() {
    const double pieces = pieces_of(bytes(), what_.costs.chunk);
    Flows before;
    for (uint32_t i = 0; i + 1 < what_.hosts; ++i) {
      before = edge(i, i + 1, {before}, pieces, bytes());
    }
  }

  // Two binary trees with half of the buffer each; inner nodes of one are leaves of the other.
  void trees() {
    const uint32_t n = what_.hosts;
    tree([](uint32_t place) { return place; });
    if (n % 2 == 0) {
      tree([n](uint32_t place) { return n - 1 - place; });
    } else {
      tree([n](uint32_t place) { return (place + 1) % n; });
    }
  }

  // As a Bruck all-gather, or its reverse, in log2 n steps.
  void pat() {
    const uint32_t n = what_.hosts;
    Flows before;
    for (uint32_t distance = 1; distance < n; distance *= 2) {
      const double part = bytes() / n * std::min(distance, n - distance);
      Flows now(n);
      for (uint32_t i = 0; i < n; ++i) {
        After after;
        if (!before.empty()) after.received = {before[(i + n - distance / 2) % n]};
        now[i] = add(after, i, (i + distance) % n, part);
      }
      before = now;
    }
  }

 private:
  double bytes() const { return static_cast<double>(what_.bytes) / what_.nics; }

  uint32_t add(const After& after, uint32_t from, uint32_t to, double payload) {
    const double sent = std::max(1.0, std::round(payload / what_.costs.payload));
    const uint32_t flow = graph_.add_after(after, from * what_.nics + nic_, to * what_.nics + nic_,
                                           static_cast<Bytes>(sent));
    graph_.flow(flow).start = Duration::from_ns(std::llround(what_.costs.step_s * 1e9));
    return flow;
  }

  // Sends each piece when it has arrived by all `inputs`, some of which may be empty.
  Flows edge(uint32_t from, uint32_t to, const std::vector<Flows>& inputs, double pieces,
             double bytes) {
    Flows flows;
    for (uint32_t piece = 0; piece < static_cast<uint32_t>(pieces); ++piece) {
      After after;
      for (const Flows& input : inputs) {
        if (!input.empty()) after.received.push_back(input[piece]);
      }
      if (piece >= what_.costs.slots) after.sent = {flows[piece - what_.costs.slots]};
      flows.push_back(add(after, from, to, bytes / pieces));
    }
    return flows;
  }

  // The lowest set bit of a place is its height: leaves are odd.
  template <typename HostAt>
  void tree(HostAt host_at) {
    const uint32_t n = what_.hosts;
    const double half = bytes() / 2;
    const double pieces = pieces_of(half, what_.costs.chunk);
    std::vector<uint32_t> parents(n, kNobody);
    for (uint32_t i = 1; i < n; ++i) {
      const uint32_t low = 1U << std::countr_zero(i);
      const uint32_t up = (i ^ low) | (low << 1);
      parents[i] = up < n ? up : i ^ low;
    }
    // Deepest first; place 0 is the root.
    std::vector<uint32_t> order(n - 1);
    std::iota(order.begin(), order.end(), 1U);
    const auto depth = [&](uint32_t i) {
      uint32_t levels = 0;
      for (; parents[i] != kNobody; i = parents[i]) ++levels;
      return levels;
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return depth(a) > depth(b); });
    std::vector<std::vector<Flows>> up(n);
    for (const uint32_t i : order) {
      up[parents[i]].push_back(edge(host_at(i), host_at(parents[i]), up[i], pieces, half));
    }
    std::vector<std::vector<Flows>> down(n);
    down[0] = up[0];
    for (auto i = order.rbegin(); i != order.rend(); ++i) {
      down[*i] = {edge(host_at(parents[*i]), host_at(*i), down[parents[*i]], pieces, half)};
    }
  }

  FlowGraph& graph_;
  const LibraryFlows& what_;
  const uint32_t nic_;
};

}  // namespace

Workload library_workload(const LibraryFlows& what) {
  FlowGraph graph;
  for (uint32_t nic = 0; nic < what.nics; ++nic) {
    Channel channel(graph, what, nic);
    if (what.algorithm == Algorithm::kTree) {
      channel.trees();
    } else if (what.algorithm == Algorithm::kPat) {
      channel.pat();
    } else if (what.operation == Operation::kBroadcast) {
      channel.chain();
    } else {
      channel.ring();
    }
  }
  Workload made = graph.take();
  made.hosts = what.hosts * what.nics;
  return made;
}

// A lower bound of the time in seconds: of the sends of a NIC of `rate` (bytes per second), or of
// the steps.
double least_s(const LibraryFlows& what, double rate) {
  const double n = what.hosts;
  const double all = static_cast<double>(what.bytes) / what.costs.payload / what.nics / rate;
  const bool ring = what.algorithm == Algorithm::kRing;
  const bool broadcast = what.operation == Operation::kBroadcast;
  if (what.algorithm == Algorithm::kTree || broadcast) {
    const double levels = broadcast ? n - 1 : 2 * std::floor(std::log2(n));
    return std::max(all, levels * what.costs.step_s);
  }
  const double rounds = is_all_reduce(what) ? 2 : 1;
  const double steps = ring ? rounds * (n - 1) : std::log2(n);
  return std::max(rounds * all * (n - 1) / n, steps * what.costs.step_s);
}

}  // namespace pacecar::predict
