// The packet I/O conformance suite over DPDK devices: net_ring and net_virtio_user in one process,
// and on interfaces of the kernel where tests/support/with_nics has made some.
#include <fmt/format.h>
#include <net/if.h>

#include <cstdlib>

#include "tests/conformance/packet_io_conformance.h"
#include "tests/support/dpdk_hub.h"
#include "tests/support/scratch_directory.h"
#include "transport/io/dpdk/dpdk_io.h"
#include "transport/io/kernel_network.h"
#include "transport/io/udp/parse_address.h"
#include "transport/wire/address.h"

namespace pacecar::packet_io_dpdk_test {
namespace {

using test::DpdkHub;
using test::DpdkLink;
using test::let_links_come_up;
using test::open_end;
using test::rested_now;

// Three ends at a hub, which know each other's MAC addresses.
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
    return rested_now();
  };
  let_links_come_up(world.step, world.ends, &net->hub);
  return world;
}

// On the three interfaces of tests/support/with_nics, which a bridge joins.
PacketIoWorld on_interfaces(const std::string& driver) {
  PacketIoWorld world;
  for (int i = 0; i < 3; ++i) {
    world.ends.push_back(open_end(
        parse_dpdk_device(fmt::format("{}{}", driver, i), fmt::format("iface=nic{}", i)).value()));
  }
  world.step = rested_now;
  let_links_come_up(world.step, world.ends);
  return world;
}

bool has_interfaces() { return std::getenv("WITH_NICS_BRIDGE") != nullptr; }

std::vector<PacketIoCase> interface_cases() {
  if (!has_interfaces()) return {};
  return {PacketIoCase{"af_packet", [] { return on_interfaces("net_af_packet"); }}};
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PacketIoConformance);
INSTANTIATE_TEST_SUITE_P(DpdkInterfaces, PacketIoConformance, testing::ValuesIn(interface_cases()),
                         case_name);

Address address_of(std::string_view text) {
  const bool ipv6 = text.find(':') != std::string_view::npos;
  return parse_address(fmt::format(fmt::runtime(ipv6 ? "[{}]:0" : "{}:0"), text)).value();
}

class KernelNetworkOn : public testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(KernelNetworkOn);
INSTANTIATE_TEST_SUITE_P(Interfaces, KernelNetworkOn,
                         testing::ValuesIn(has_interfaces() ? std::vector<std::string>{"nic0"}
                                                            : std::vector<std::string>{}));

TEST_P(KernelNetworkOn, FindsWhatTheKernelsTableHas) {
  KernelNetwork network(if_nametoindex(GetParam().c_str()));
  for (const char* const text : {"192.0.2.99", "2001:db8::99"}) {
    const Address address = address_of(text);
    EXPECT_FALSE(network.find_mac(address)) << text;
    const std::string command = fmt::format("ip neigh replace {} dev {} lladdr ", text, GetParam());
    ASSERT_EQ(std::system((command + "02:00:00:00:00:63 nud stale").c_str()), 0);
    EXPECT_EQ(network.find_mac(address), (MacAddress{2, 0, 0, 0, 0, 0x63}));
    ASSERT_EQ(std::system((command + "02:00:00:00:00:64 nud failed").c_str()), 0);
    EXPECT_FALSE(network.find_mac(address)) << text;
  }
}

TEST_P(KernelNetworkOn, TakesTheKernelsRoutes) {
  KernelNetwork network(if_nametoindex(GetParam().c_str()));
  for (const auto& [far, gateway] :
       {std::pair("203.0.113.7", "192.0.2.99"), std::pair("2001:db8:7::1", "2001:db8::99")}) {
    const Address to = address_of(far);
    EXPECT_EQ(network.next_hop(to), to) << "without a route all hosts are on the link";
    const std::string route = fmt::format("{} via {} dev {} onlink", far, gateway, GetParam());
    ASSERT_EQ(std::system(("ip route replace " + route).c_str()), 0);
    EXPECT_EQ(network.next_hop(to), address_of(gateway));
    EXPECT_EQ(network.next_hop(address_of(gateway)), address_of(gateway));
    ASSERT_EQ(std::system(("ip route delete " + route).c_str()), 0);
    EXPECT_EQ(network.next_hop(to), to);
  }
}

Error refusal(std::string_view name, std::string_view arguments = "") {
  const auto opened = open_dpdk({.device = parse_dpdk_device(name, arguments).value()}, {});
  EXPECT_FALSE(opened) << name;
  return opened ? Error{} : opened.error();
}

TEST(DpdkIo, UnknownDevicesAreNamedWithTheReason) {
  const Error driver = refusal("net_nothing0");
  EXPECT_EQ(driver.code, ErrorCode::kNotFound);
  EXPECT_THAT(driver.message,
              testing::HasSubstr("'net_nothing0' cannot be made (EAL: failed to parse"));
  const Error interface = refusal("net_af_packet0", "iface=no_such_one");
  EXPECT_EQ(interface.code, ErrorCode::kNotFound);
  EXPECT_THAT(interface.message, testing::HasSubstr("No such device"));
  EXPECT_THAT(refusal("net_memif9", "role=server").message,
              testing::HasSubstr("use net_vhost in one process and net_virtio_user in the other"));
  EXPECT_THAT(refusal("net_af_xdp0", "iface=lo").message,
              testing::HasSubstr("use net_af_packet, or soft:raw:INTERFACE"));
  EXPECT_EQ(refusal("0000:ff:1f.7").code, ErrorCode::kInvalidArgument) << "started without PCI";
}

TEST(DpdkIo, DeviceIsExclusiveUntilClosed) {
  const test::ScratchDirectory folder;
  DpdkHub hub(DpdkLink::kVirtio, 1, folder.path().string());
  for (int round = 0; round < 3; ++round) {
    const auto first = open_end(hub.device(0));
    const Error second = refusal(hub.device(0).name);
    EXPECT_EQ(second.code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(second.message, testing::HasSubstr("is in use by this process"));
    std::array<RxPacket, 4> none;
    for (int i = 0; i < 500; ++i) {  // until device and hub are connected
      first->receive(none, rested_now());
      hub.turn();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Dpdk, PacketIoConformance,
    testing::Values(PacketIoCase{"ring_ipv4", [] { return at_hub(DpdkLink::kRing, true); }},
                    PacketIoCase{"ring_ipv6", [] { return at_hub(DpdkLink::kRing, false); }},
                    PacketIoCase{"virtio_ipv4", [] { return at_hub(DpdkLink::kVirtio, true); }},
                    PacketIoCase{"virtio_ipv6", [] { return at_hub(DpdkLink::kVirtio, false); }}),
    case_name);

}  // namespace
}  // namespace pacecar::packet_io_dpdk_test
