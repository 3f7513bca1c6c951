#include "transport/wire/address.h"

#include <gtest/gtest.h>

namespace pacecar::address_test {
namespace {

TEST(Address, Ipv4MappedIsWrittenAsDottedQuad) {
  const Address address{.ip = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1},
                        .port = 4791};
  EXPECT_EQ(ip_to_string(address), "192.0.2.1");
  EXPECT_EQ(to_string(address), "192.0.2.1:4791");
}

TEST(Address, Ipv6WithPortIsInBrackets) {
  const Address address{.ip = {0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
                        .port = 65535};
  EXPECT_EQ(ip_to_string(address), "2001:db8::1");
  EXPECT_EQ(to_string(address), "[2001:db8::1]:65535");
  EXPECT_EQ(to_string(Address{}), "[::]:0");
}

TEST(Address, ScopeFollowsTheIp) {
  const Address address{
      .ip = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, .scope_id = 3, .port = 1};
  EXPECT_EQ(ip_to_string(address), "fe80::1%3");
  EXPECT_EQ(to_string(address), "[fe80::1%3]:1");
}

// fe80::/10: the first ten bits decide.
TEST(Address, LinkLocalIsRecognisedByItsPrefix) {
  const auto link_local = [](uint8_t first, uint8_t second, uint8_t third) {
    return is_link_local({.ip = {first, second, third}});
  };
  EXPECT_TRUE(link_local(0xFE, 0x80, 0));
  EXPECT_TRUE(link_local(0xFE, 0xBF, 0xFF));
  EXPECT_FALSE(link_local(0xFE, 0xC0, 0x80));
  EXPECT_FALSE(link_local(0xFE, 0x7F, 0x80));
  EXPECT_FALSE(link_local(0xFE, 0x00, 0));
  EXPECT_FALSE(link_local(0xFF, 0x80, 0));
  EXPECT_FALSE(link_local(0xFD, 0x80, 0));
  EXPECT_FALSE(link_local(0x00, 0xFE, 0x80));
}

}  // namespace
}  // namespace pacecar::address_test
