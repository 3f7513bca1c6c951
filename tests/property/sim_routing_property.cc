// Routes through random networks against distances found by relaxing every cable until none helps.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

#include "transport/sim/routing.h"

namespace pacecar {
namespace {

constexpr uint32_t kFar = 1000;

// Cables from every node to host `destination`, over switches only.
std::vector<uint32_t> steps_to(const Topology& topology, uint32_t destination) {
  std::vector<uint32_t> steps(topology.nodes(), kFar);
  steps[destination] = 0;
  const auto relax = [&](NodeId from, NodeId over) {
    if (over < topology.hosts && over != destination) return false;
    if (steps[over] + 1 >= steps[from]) return false;
    steps[from] = steps[over] + 1;
    return true;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (const Cable& cable : topology.cables) {
      changed |= relax(cable.a, cable.b);
      changed |= relax(cable.b, cable.a);
    }
  }
  return steps;
}

Topology draw_topology() {
  Topology topology;
  topology.name = "random";
  topology.hosts = *rc::gen::inRange(1U, 7U);
  topology.switches = *rc::gen::inRange(1U, 7U);
  const auto any = rc::gen::inRange(0U, topology.nodes());
  const auto any_switch = rc::gen::inRange(topology.hosts, topology.nodes());
  for (NodeId host = 0; host < topology.hosts; ++host) {
    topology.cables.push_back({.a = host, .b = *any_switch});
  }
  const auto more = *rc::gen::inRange(0, 20);
  for (int i = 0; i < more; ++i) {
    const Cable cable{.a = *any, .b = *any};
    if (cable.a != cable.b) topology.cables.push_back(cable);
  }
  return topology;
}

RC_GTEST_PROP(Routing, EqualsBruteForce, ()) {
  const Topology topology = draw_topology();
  const auto routing = make_routing(topology);
  bool all_reached = true;
  for (uint32_t host = 0; host < topology.hosts; ++host) {
    const auto steps = steps_to(topology, host);
    all_reached &= std::all_of(steps.begin(), steps.begin() + topology.hosts,
                               [](uint32_t each) { return each < kFar; });
    if (!routing) continue;
    for (NodeId node = 0; node < topology.nodes(); ++node) {
      std::vector<LinkId> expected;
      for (uint32_t i = 0; i < topology.cables.size(); ++i) {
        const auto& [a, b, rate, delay] = topology.cables[i];
        const auto nearer = [&](NodeId from, NodeId to) {
          const bool forwards = to >= topology.hosts || to == host;
          return from == node && forwards && steps[from] < kFar && steps[to] + 1 == steps[from];
        };
        if (nearer(a, b)) expected.push_back(2 * i);
        if (nearer(b, a)) expected.push_back(2 * i + 1);
      }
      const auto links = routing->next_links(node, host);
      RC_ASSERT(std::vector<LinkId>(links.begin(), links.end()) == expected);
    }
  }
  RC_ASSERT(routing.has_value() == all_reached);
}

}  // namespace
}  // namespace pacecar
