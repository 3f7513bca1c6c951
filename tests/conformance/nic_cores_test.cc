// The NIC conformance suite for software NICs of several cores: over the simulated network on a
// virtual clock, without and with faults, and over UDP loopback with threads.
#include "tests/conformance/nic_conformance.h"
#include "tests/support/cores_host.h"
#include "tests/support/turned_nics.h"
#include "transport/engine/clock.h"
#include "transport/io/udp/udp_io.h"

namespace pacecar {
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
  return {.nics = {&world->a.nic(), &world->b.nic()},
          .step =
              [world] {
                test::SimStar& network = world->network;
                network.advance_to(network.now() + Duration::from_us(5));
                world->a.turn(network.now());
                world->b.turn(network.now());
                return network.now();
              },
          .owner = world};
}

constexpr SimFaults kStorm{
    .loss = 0.05, .duplication = 0.05, .reordering = 0.2, .corruption = 0.02};

NicWorld one_and_two() { return make_sim_world({}, {1, 2}); }
NicWorld two() { return make_sim_world({}, {2, 2}); }
NicWorld two_stormy() { return make_sim_world(kStorm, {2, 2}); }
NicWorld three_and_two_stormy() { return make_sim_world(kStorm, {3, 2}, Security::kAuth); }
NicWorld three_encrypt_stormy() { return make_sim_world(kStorm, {3, 3}, Security::kEncrypt); }

uint32_t next_random(void* prng) {
  return static_cast<uint32_t>(static_cast<Prng*>(prng)->next_u64());
}

// What a port of a NIC needs.
struct OwnCore {
  std::unique_ptr<PacketIo> io = std::move(open_udp({.interface = "lo"}).value());
  Prng random;
  SoftNic nic;

  OwnCore(uint64_t seed, const Secret& key_seed)
      : random(seed), nic(config(*io, key_seed), {next_random, &random}, clock_now()) {}
  static SoftNicConfig config(const PacketIo& io, const Secret& key_seed) {
    SoftNicConfig config = nic_config(4096, Security::kAuth);
    config.address = io.local_address();
    config.paths = io.caps().paths;
    config.key_seed = key_seed;
    return config;
  }
};

// The first core is turned by the test, the others by threads.
NicWorld loopback(std::array<size_t, 2> counts) {
  struct World {
    std::vector<std::unique_ptr<OwnCore>> cores;
    test::TurnedNics<MultiCoreNic> turned;
  };
  const auto world = std::make_shared<World>();
  for (size_t side = 0; side < 2; ++side) {
    std::vector<std::unique_ptr<SoftPort>> ports;
    Secret seed{};
    seed[0] = static_cast<uint8_t>(side + 1);
    for (size_t i = 0; i < counts[side]; ++i) {
      OwnCore& core =
          *world->cores.emplace_back(std::make_unique<OwnCore>(side * 10 + i + 1, seed));
      ports.push_back(std::make_unique<SoftPort>(*core.io, core.nic, SoftPort::kMaxTransmit,
                                                 clock_now));
    }
    const CoreThreadConfig config{.clock = clock_now, .spin = Duration::from_us(20)};
    world->turned.nics[side] = std::move(MultiCoreNic::make(std::move(ports), config).value());
  }
  return {.nics = {world->turned.nics[0].get(), world->turned.nics[1].get()},
          .step = [world] { return world->turned.step(); },
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
}  // namespace pacecar
