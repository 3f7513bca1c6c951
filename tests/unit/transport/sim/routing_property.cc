// Routes through random networks against distances computed by relaxation.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

#include "transport/sim/routing.h"
#include "transport/sim/topology.h"

namespace pacecar::routing_property {
namespace {

constexpr uint32_t kFar = 1000;

// The number of usable cables from each node to host `destination`, over switches only.
std::vector<uint32_t> steps_to(const Topology& topology, const std::vector<bool>& usable,
                               uint32_t destination) {
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
    for (size_t i = 0; i < topology.cables.size(); ++i) {
      if (!usable[i]) continue;
      changed |= relax(topology.cables[i].a, topology.cables[i].b);
      changed |= relax(topology.cables[i].b, topology.cables[i].a);
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

// Checks `routing` if not null; returns whether all hosts reach each other.
bool check_shortest(const Topology& topology, const std::vector<bool>& usable,
                    const Routing* routing) {
  bool all_reached = true;
  for (uint32_t host = 0; host < topology.hosts; ++host) {
    const auto steps = steps_to(topology, usable, host);
    all_reached &= std::all_of(steps.begin(), steps.begin() + topology.hosts,
                               [](uint32_t each) { return each < kFar; });
    if (routing == nullptr) continue;
    for (NodeId node = 0; node < topology.nodes(); ++node) {
      if (node < topology.hosts && steps[node] == kFar) continue;  // its links may be any
      std::vector<LinkId> expected;
      for (uint32_t i = 0; i < topology.cables.size(); ++i) {
        if (!usable[i]) continue;
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
  return all_reached;
}

RC_GTEST_PROP(Routing, RoutesAreShortest, ()) {
  const Topology topology = draw_topology();
  const std::vector<bool> all(topology.cables.size(), true);
  const auto routing = make_routing(topology);
  RC_ASSERT(check_shortest(topology, all, routing ? &*routing : nullptr) == routing.has_value());
}

RC_GTEST_PROP(Routing, RoutesAvoidFailedCables, ()) {
  const Topology topology = draw_topology();
  std::vector<bool> usable(topology.cables.size());
  for (size_t i = 0; i < usable.size(); ++i) usable[i] = *rc::gen::inRange(0, 4) > 0;
  const Routing routing = make_routing(topology, usable);
  check_shortest(topology, usable, &routing);
}

}  // namespace
}  // namespace pacecar::routing_property
