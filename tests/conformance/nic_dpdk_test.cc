// The NIC conformance suite for the software NIC over DPDK devices in one process: net_ring,
// and net_virtio_user without and with faults.
#include "tests/conformance/nic_conformance.h"
#include "tests/support/dpdk_hub.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/soft_nic_host.h"
#include "transport/io/decorators/fault.h"

namespace pacecar::nic_dpdk_test {
namespace {

using test::DpdkHub;
using test::DpdkLink;
using test::SoftNicHost;

constexpr FaultConfig kStorm{.loss = 0.1, .duplicate = 0.1, .corrupt = 0.04, .reorder = 0.36};

// The storm loses one in four probes or their acknowledgements, and a busy machine has time for
// few.
constexpr Duration kSilenceLimit = Duration::from_s(2);

std::vector<std::unique_ptr<PacketIo>> open_ends(DpdkHub& hub, const FaultConfig& faults) {
  std::vector<std::unique_ptr<PacketIo>> ends;
  for (size_t i = 0; i < 2; ++i) {
    ends.push_back(inject_faults(test::open_end(hub.device(i)), faults));
  }
  const auto step = [&hub] {
    hub.turn();
    return test::rested_now();
  };
  test::let_links_come_up(step, ends, &hub);
  return ends;
}

NicWorld make_dpdk_world(DpdkLink link, const FaultConfig& faults, WireMode wire_mode) {
  struct World {
    World(DpdkLink kind, const FaultConfig& network_faults, WireMode mode)
        : hub(kind, 2, folder.path().string()),
          ios(open_ends(hub, network_faults)),
          a(*ios[0], 2, 1024, test::rested_now(), mode, kSilenceLimit),
          b(*ios[1], 3, 2048, test::rested_now(), mode, kSilenceLimit) {}
    test::ScratchDirectory folder;
    DpdkHub hub;
    std::vector<std::unique_ptr<PacketIo>> ios;
    SoftNicHost a;
    SoftNicHost b;
  };
  const auto world = std::make_shared<World>(link, faults, wire_mode);
  return {.nics = {&world->a.nic(), &world->b.nic()},
          .step =
              [world] {
                const Instant now = test::rested_now();
                world->a.turn(now);
                world->hub.turn();
                world->b.turn(now);
                return now;
              },
          .next_deadline = next_deadline_of(world->a.nic(), world->b.nic()),
          .owner = world};
}

NicWorld ring() { return make_dpdk_world(DpdkLink::kRing, {}, WireMode::kExtended); }
NicWorld virtio() { return make_dpdk_world(DpdkLink::kVirtio, {}, WireMode::kExtended); }
NicWorld virtio_stormy() { return make_dpdk_world(DpdkLink::kVirtio, kStorm, WireMode::kExtended); }
NicWorld roce_ring() { return make_dpdk_world(DpdkLink::kRing, {}, WireMode::kRoce); }
NicWorld roce_stormy() { return make_dpdk_world(DpdkLink::kVirtio, kStorm, WireMode::kRoce); }

INSTANTIATE_TEST_SUITE_P(DpdkNic, NicConformance,
                         testing::Values(NicCase{"ring", ring}, NicCase{"virtio", virtio},
                                         NicCase{"virtio_stormy", virtio_stormy},
                                         NicCase{"roce_ring", roce_ring},
                                         NicCase{"roce_virtio_stormy", roce_stormy}),
                         nic_case_name);

const auto kRoceCases =
    testing::Values(NicCase{"roce_ring", roce_ring}, NicCase{"roce_virtio_stormy", roce_stormy});
INSTANTIATE_TEST_SUITE_P(DpdkNic, NicReads, kRoceCases, nic_case_name);
INSTANTIATE_TEST_SUITE_P(DpdkNic, NicRequests, kRoceCases, nic_case_name);
INSTANTIATE_TEST_SUITE_P(DpdkNic, NicRcConformance, kRoceCases, nic_case_name);

}  // namespace
}  // namespace pacecar::nic_dpdk_test
