// The NIC conformance suite for the software NIC: over the simulated network, without and with
// faults, and over UDP loopback.
#include <poll.h>
#include <time.h>

#include <stdexcept>

#include "tests/conformance/nic_conformance.h"
#include "tests/support/sim_star.h"
#include "tests/support/soft_nic_host.h"
#include "transport/io/udp/udp_io.h"

namespace pacecar::nic_softnic_test {
namespace {

using test::SoftNicHost;

constexpr Duration kSilence = Duration::from_ms(300);

NicWorld make_sim_world(const SimFaults& faults, WireMode wire_mode = WireMode::kExtended,
                        Security security = Security::kOff) {
  struct World {
    World(const SimFaults& network_faults, WireMode mode, Security protection)
        : a(network.port(0), 2, 1024, network.now(), mode, kSilence, protection),
          b(network.port(1), 3, 2048, network.now(), mode, kSilence, protection) {
      network.fabric().set_faults(network_faults);
    }
    test::SimStar network;
    SoftNicHost a;
    SoftNicHost b;
  };
  const auto world = std::make_shared<World>(faults, wire_mode, security);
  return in_virtual_time(world);
}

constexpr SimFaults kStorm{
    .loss = 0.05, .duplication = 0.05, .reordering = 0.2, .corruption = 0.02};

NicWorld calm() { return make_sim_world({}); }
NicWorld stormy() { return make_sim_world(kStorm); }
NicWorld auth_stormy() { return make_sim_world(kStorm, WireMode::kExtended, Security::kAuth); }
NicWorld encrypt_stormy() {
  return make_sim_world(kStorm, WireMode::kExtended, Security::kEncrypt);
}
NicWorld roce_calm() { return make_sim_world({}, WireMode::kRoce); }
NicWorld roce_stormy() { return make_sim_world(kStorm, WireMode::kRoce); }

Instant monotonic_now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return Instant::from_ns(t.tv_sec * 1'000'000'000 + t.tv_nsec);
}

std::unique_ptr<PacketIo> open_loopback() {
  auto io = open_udp({.interface = "lo"});
  if (!io) throw std::runtime_error(io.error().message);
  return std::move(*io);
}

NicWorld loopback(Security security) {
  struct World {
    explicit World(Security protection) : security(protection) {}
    Security security;
    std::unique_ptr<PacketIo> io_a = open_loopback();
    std::unique_ptr<PacketIo> io_b = open_loopback();
    SoftNicHost a{*io_a, 2, 4096, monotonic_now(), WireMode::kExtended, kSilence, security};
    SoftNicHost b{*io_b, 3, 4096, monotonic_now(), WireMode::kExtended, kSilence, security};
  };
  const auto world = std::make_shared<World>(security);
  return {.nics = {&world->a.nic(), &world->b.nic()},
          .step =
              [world] {
                // Sleeps only while neither NIC has a deadline within 1 ms.
                const Instant next =
                    std::min(world->a.nic().next_deadline(), world->b.nic().next_deadline());
                if (next > monotonic_now() + Duration::from_ms(1)) {
                  std::array<pollfd, 2> ends{pollfd{world->io_a->wait_fd(), POLLIN, 0},
                                             pollfd{world->io_b->wait_fd(), POLLIN, 0}};
                  poll(ends.data(), ends.size(), 1);
                }
                const Instant now = monotonic_now();
                world->a.turn(now);
                world->b.turn(now);
                return now;
              },
          .next_deadline = next_deadline_of(world->a.nic(), world->b.nic()),
          .owner = world};
}

NicWorld loopback_off() { return loopback(Security::kOff); }
NicWorld loopback_encrypt() { return loopback(Security::kEncrypt); }

INSTANTIATE_TEST_SUITE_P(SoftNic, NicConformance,
                         testing::Values(NicCase{"calm", calm}, NicCase{"stormy", stormy},
                                         NicCase{"auth_stormy", auth_stormy},
                                         NicCase{"encrypt_stormy", encrypt_stormy},
                                         NicCase{"loopback", loopback_off},
                                         NicCase{"loopback_encrypt", loopback_encrypt},
                                         NicCase{"roce_calm", roce_calm},
                                         NicCase{"roce_stormy", roce_stormy}),
                         nic_case_name);

const auto kRoceCases =
    testing::Values(NicCase{"roce_calm", roce_calm}, NicCase{"roce_stormy", roce_stormy});
INSTANTIATE_TEST_SUITE_P(SoftNic, NicReads, kRoceCases, nic_case_name);
INSTANTIATE_TEST_SUITE_P(SoftNic, NicRequests, kRoceCases, nic_case_name);
INSTANTIATE_TEST_SUITE_P(SoftNic, NicRcConformance, kRoceCases, nic_case_name);

}  // namespace
}  // namespace pacecar::nic_softnic_test
