// The NIC conformance suite for software NICs of several cores: over the simulated network on a
// virtual clock, without and with faults, and over UDP loopback with threads.
#include "tests/conformance/nic_conformance.h"
#include "tests/support/cores_host.h"
#include "tests/support/two_cores_loopback.h"

namespace pacecar::nic_cores_test {
namespace {

using test::CorePorts;
using test::CoresHost;

constexpr Duration kSilence = Duration::from_ms(300);

SoftNicConfig nic_config(Bytes mtu, Security security) {
  return {.line_rate = Rate::from_gbps(100),
          .mtu = mtu,
          .burst_bytes = 4 * mtu,
          .flows = 4,
          .queue_pairs = 16,
          .regions = 32,
          .window_packets = 64,
          .security = security,
          .silence_limit = kSilence};
}

NicWorld make_sim_world(const SimFaults& faults, std::array<size_t, 2> cores,
                        Security security = Security::kOff) {
  struct World {
    World(const SimFaults& network_faults, std::array<size_t, 2> cores, Security security)
        : network(static_cast<uint32_t>(cores[0] + cores[1])),
          hosts{CorePorts{0, cores[0]}, CorePorts{cores[0], cores[1]}},
          a(network, hosts, 0, nic_config(1024, security)),
          b(network, hosts, 1, nic_config(2048, security)) {
      network.fabric().set_faults(network_faults);
    }
    test::SimStar network;
    std::array<CorePorts, 2> hosts;
    CoresHost a;
    CoresHost b;
  };
  const auto world = std::make_shared<World>(faults, cores, security);
  return in_virtual_time(world);
}

constexpr SimFaults kStorm{
    .loss = 0.05, .duplication = 0.05, .reordering = 0.2, .corruption = 0.02};

NicWorld one_and_two() { return make_sim_world({}, {1, 2}); }
NicWorld two() { return make_sim_world({}, {2, 2}); }
NicWorld two_stormy() { return make_sim_world(kStorm, {2, 2}); }
NicWorld three_and_two_stormy() { return make_sim_world(kStorm, {3, 2}, Security::kAuth); }
NicWorld three_encrypt_stormy() { return make_sim_world(kStorm, {3, 3}, Security::kEncrypt); }

// The test drives the first core, threads drive the others.
NicWorld loopback(std::array<size_t, 2> cores) {
  const auto world = std::make_shared<test::TwoCoresLoopback>(cores);
  return {.nics = {&world->nic(0), &world->nic(1)},
          .step = [world] { return world->step(); },
          .next_deadline = next_deadline_of(world->port(0), world->port(1)),
          .owner = world};
}

NicWorld threads_two() { return loopback({2, 2}); }
NicWorld threads_one_and_three() { return loopback({1, 3}); }

INSTANTIATE_TEST_SUITE_P(Cores, NicConformance,
                         testing::Values(NicCase{"one_and_two", one_and_two}, NicCase{"two", two},
                                         NicCase{"two_stormy", two_stormy},
                                         NicCase{"three_and_two_stormy", three_and_two_stormy},
                                         NicCase{"three_encrypt_stormy", three_encrypt_stormy},
                                         NicCase{"threads_two", threads_two},
                                         NicCase{"threads_one_and_three", threads_one_and_three}),
                         nic_case_name);

}  // namespace
}  // namespace pacecar::nic_cores_test
