// Which interface the bootstrap uses.
#include "transport/engine/open/bootstrap_choice.h"

#include <gtest/gtest.h>

#include <vector>

namespace pacecar::bootstrap_choice_test {
namespace {

Address ipv4(uint8_t last) {
  return {.ip = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 192, 0, 2, last}, .port = 0};
}
Address link_local(uint8_t last) {
  Address address;
  address.ip = {0xFE, 0x80};
  address.ip[15] = last;
  return address;
}

const std::vector<InterfaceInfo> kInterfaces{
    {.name = "lo", .addresses = {ipv4(1)}, .up = true, .loopback = true},
    {.name = "docker0", .addresses = {ipv4(2)}, .up = true},
    {.name = "ib0", .addresses = {link_local(3)}, .up = true},
    {.name = "eth0", .addresses = {ipv4(4)}, .up = false},
    {.name = "eth1", .addresses = {link_local(5), ipv4(5)}, .up = true},
    {.name = "eth10", .addresses = {ipv4(6)}, .up = true},
};

std::optional<Address> choose(std::string_view wish, std::string_view netdev = {},
                              const std::optional<Address>& routed = {}) {
  return choose_bootstrap(kInterfaces, wish, netdev, routed);
}

TEST(BootstrapChoice, NamesMatchAsInNccl) {
  EXPECT_TRUE(names_interface("", "eth0"));
  EXPECT_TRUE(names_interface("eth", "eth0"));
  EXPECT_TRUE(names_interface("ib,eth", "eth0"));
  EXPECT_FALSE(names_interface("ib,eth", "lo"));
  EXPECT_FALSE(names_interface("=eth", "eth0"));
  EXPECT_TRUE(names_interface("=ib0,eth0", "eth0"));
  EXPECT_FALSE(names_interface("^docker,lo", "docker0"));
  EXPECT_TRUE(names_interface("^docker,lo", "eth0"));
  EXPECT_TRUE(names_interface("^=eth1", "eth10"));
  EXPECT_TRUE(names_interface("=eth0:1", "eth0")) << "an address's label";
}

TEST(BootstrapChoice, NamedInterfaceIsChosen) {
  EXPECT_EQ(choose("eth"), ipv4(5)) << "the first interface that is up";
  EXPECT_EQ(choose("=eth10"), ipv4(6));
  EXPECT_EQ(choose("lo"), ipv4(1));
  EXPECT_EQ(choose("=eth10", "eth1", ipv4(2)), ipv4(6)) << "the name has priority";
  EXPECT_EQ(choose("eth0"), std::nullopt) << "no other interface replaces a named one";
  EXPECT_EQ(choose("ib0"), std::nullopt) << "link-local";
}

TEST(BootstrapChoice, UnnamedChoicePrefersTheNicsOwnInterface) {
  EXPECT_EQ(choose("", "eth10", ipv4(5)), ipv4(6));
  EXPECT_EQ(choose("", "lo"), ipv4(1)) << "a NIC on the loopback";
  EXPECT_EQ(choose("", "ib0", ipv4(5)), ipv4(5))
      << "the NIC's own interface has a link-local address only";
  EXPECT_EQ(choose("", "", ipv4(6)), ipv4(6));
  EXPECT_EQ(choose("^docker", "", {}), ipv4(5));
  EXPECT_EQ(choose_bootstrap(std::span(kInterfaces).first(1), "", "", ipv4(1)), std::nullopt);
}

}  // namespace
}  // namespace pacecar::bootstrap_choice_test
