#include <gtest/gtest.h>

#include "transport/io/dpdk/routes.h"
#include "transport/io/udp/parse_address.h"
#include "transport/wire/address.h"

namespace pacecar::routes_test {
namespace {

std::string hop(const Routes& routes, const std::string& to) {
  const bool ipv6 = to.find(':') != std::string::npos;
  return ip_to_string(routes.next_hop(parse_address(ipv6 ? "[" + to + "]:0" : to + ":0").value()));
}

// The format of /proc/net/route on a little-endian host.
constexpr std::string_view kIpv4 =
    "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
    "eth0\t00000000\tFE0200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
    "eth0\t00000000\tFD0200C0\t0003\t0\t0\t50\t00000000\t0\t0\t0\n"
    "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    "eth0\t006433C6\tFC0200C0\t0003\t0\t0\t0\t00E0FFFF\t0\t0\t0\n"
    "eth0\t0000000A\t00000000\t0201\t0\t0\t0\t000000FF\t0\t0\t0\n"
    "eth1\t000200C0\tFB0200C0\t0003\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    "eth0\t00\n"
    "eth0\tnonsense\tFC0200C0\t0003\t0\t0\t0\t00E0FFFF\t0\t0\t0\n";

TEST(Routes, LongestIpv4PrefixThenLeastMetricIsChosen) {
  const Routes routes(parse_ipv4_routes(kIpv4, "eth0"));
  EXPECT_EQ(hop(routes, "192.0.2.77"), "192.0.2.77");
  EXPECT_EQ(hop(routes, "203.0.113.1"), "192.0.2.253");
  EXPECT_EQ(hop(routes, "198.51.100.1"), "192.0.2.252");
  EXPECT_EQ(hop(routes, "198.51.127.255"), "192.0.2.252");
  EXPECT_EQ(hop(routes, "198.51.128.0"), "192.0.2.253");
  EXPECT_EQ(hop(routes, "10.1.2.3"), "192.0.2.253")
      << "the kernel marks the route to 10.0.0.0/8 as rejecting";
  EXPECT_EQ(parse_ipv4_routes(kIpv4, "eth0").size(), 4U);
}

TEST(Routes, Ipv6RoutesOfTheInterfaceAreUsed) {
  const std::string none(32, '0');
  const std::string gateway = "fe80" + std::string(26, '0') + "99";
  const std::string prefix = "20010db8" + std::string(24, '0');
  const std::string text = prefix + " 40 " + none + " 00 " + none + " 100 1 0 00000001 eth0\n" +
                           none + " 00 " + none + " 00 " + gateway + " 400 2 0 00000003 eth0\n" +
                           none + " 00 " + none + " 00 " + none + " ffffffff 1 0 00200200 lo\n" +
                           prefix + " 80 " + none + " 00 " + gateway + " 0 3 0 80200001 eth0\n" +
                           prefix + " 81 " + none + " 00 " + gateway + " 0 3 0 00000003 eth0\n";
  const Routes routes(parse_ipv6_routes(text, "eth0"));
  EXPECT_EQ(hop(routes, "2001:db8::5"), "2001:db8::5");
  EXPECT_EQ(hop(routes, "2001:db8::"), "2001:db8::") << "a local address of the kernel is no route";
  EXPECT_EQ(hop(routes, "2001:db9::5"), "fe80::99");
  EXPECT_EQ(hop(routes, "fe80::99"), "fe80::99") << "gateways are on the link";
}

TEST(Routes, WithoutRoutesAllHostsAreOnTheLink) {
  EXPECT_EQ(hop(Routes(), "192.0.2.1"), "192.0.2.1");
  EXPECT_EQ(hop(Routes(parse_ipv4_routes("", "eth0")), "2001:db8::1"), "2001:db8::1");
}

}  // namespace
}  // namespace pacecar::routes_test
