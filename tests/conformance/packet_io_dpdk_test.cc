// The packet I/O conformance suite over DPDK devices: net_ring and net_memif in one process.
#include <time.h>

#include <stdexcept>

#include "tests/conformance/packet_io_conformance.h"
#include "tests/support/dpdk_hub.h"
#include "tests/support/scratch_directory.h"
#include "transport/io/dpdk/dpdk_io.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

using test::DpdkHub;
using test::DpdkLink;

Instant monotonic_now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return Instant::from_ns(t.tv_sec * 1'000'000'000 + t.tv_nsec);
}

void rest_a_little() {
  const timespec moment{0, 20'000};
  nanosleep(&moment, nullptr);
}

std::unique_ptr<PacketIo> open_end(const DpdkDevice& device) {
  auto opened = open_dpdk({.device = device}, {});
  if (!opened) throw std::runtime_error(opened.error().message);
  return std::move(opened->io);
}

// Three ends at a hub, which have heard of each other.
PacketIoWorld at_hub(DpdkLink link, bool ipv4) {
  struct Net {
    explicit Net(DpdkLink kind) : hub(kind, 3, folder.path().string()) {}
    test::ScratchDirectory folder;
    DpdkHub hub;
  };
  const auto net = std::make_shared<Net>(link);
  PacketIoWorld world;
  for (size_t i = 0; i < 3; ++i) {
    DpdkDevice device = net->hub.device(i);
    if (ipv4) {
      device.address = Address{
          .ip = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 192, 0, 2, static_cast<uint8_t>(i + 1)}};
    }
    world.ends.push_back(open_end(device));
  }
  world.step = [net] {
    net->hub.turn();
    rest_a_little();
    return monotonic_now();
  };
  std::array<RxPacket, 4> none;
  for (int i = 0; i < 500; ++i) {
    const Instant now = world.step();
    for (auto& end : world.ends) end->receive(none, now);
  }
  return world;
}

INSTANTIATE_TEST_SUITE_P(
    Dpdk, PacketIoConformance,
    testing::Values(PacketIoCase{"ring_ipv4", [] { return at_hub(DpdkLink::kRing, true); }},
                    PacketIoCase{"ring_ipv6", [] { return at_hub(DpdkLink::kRing, false); }},
                    PacketIoCase{"memif_ipv4", [] { return at_hub(DpdkLink::kMemif, true); }},
                    PacketIoCase{"memif_ipv6", [] { return at_hub(DpdkLink::kMemif, false); }}),
    case_name);

}  // namespace
}  // namespace pacecar
