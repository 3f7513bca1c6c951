#include "transport/engine/nic_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pacecar {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

InterfaceInfo interface(std::string name, bool up = true, bool address = true) {
  InterfaceInfo info{.name = std::move(name), .up = up};
  info.loopback = info.name == "lo";
  if (address) {
    info.addresses.push_back({.ip = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 192, 0, 2, 1}});
  }
  return info;
}

const std::vector<InterfaceInfo> kMachine{interface("lo"), interface("eth0"), interface("eth1"),
                                          interface("down0", false),
                                          interface("bare0", true, false)};

std::vector<std::string> chosen(std::string_view list,
                                const std::vector<InterfaceInfo>& machine = kMachine) {
  const auto interfaces = choose_interfaces(list, machine);
  if (!interfaces) return {"error: " + interfaces.error().message};
  std::vector<std::string> names;
  for (const InterfaceInfo& info : *interfaces) names.push_back(info.name);
  return names;
}

Error error(std::string_view list, const std::vector<InterfaceInfo>& machine = kMachine) {
  const auto interfaces = choose_interfaces(list, machine);
  EXPECT_FALSE(interfaces);
  return interfaces ? Error{} : interfaces.error();
}

TEST(NicList, EmptyListMeansEveryUsableInterface) {
  EXPECT_THAT(chosen(""), ElementsAre("eth0", "eth1"));
}

TEST(NicList, LoopbackServesWhenThereIsNoOther) {
  EXPECT_THAT(chosen("", {interface("lo"), interface("down0", false)}), ElementsAre("lo"));
  EXPECT_THAT(chosen("^eth0,^eth1"), ElementsAre("lo"));
}

TEST(NicList, NamesChooseInTheirOrder) {
  EXPECT_THAT(chosen("eth1,soft:udp:eth0"), ElementsAre("eth1", "eth0"));
  EXPECT_THAT(chosen("lo"), ElementsAre("lo"));
}

TEST(NicList, NameTwiceCountsOnce) {
  EXPECT_THAT(chosen("eth1,soft:udp:eth1"), ElementsAre("eth1"));
}

TEST(NicList, CaretTakesAway) {
  EXPECT_THAT(chosen("^eth0"), ElementsAre("eth1"));
  EXPECT_THAT(chosen("^soft:udp:eth0"), ElementsAre("eth1"));
  EXPECT_THAT(chosen("^eth0,eth0,eth1"), ElementsAre("eth1"));
  EXPECT_THAT(chosen("^nothing"), ElementsAre("eth0", "eth1"));
}

TEST(NicList, RawSocketsAreAskedForByName) {
  const auto interfaces = choose_interfaces("soft:raw:eth1,eth0", kMachine);
  ASSERT_TRUE(interfaces);
  ASSERT_EQ(interfaces->size(), 2U);
  EXPECT_TRUE((*interfaces)[0].raw);
  EXPECT_FALSE((*interfaces)[1].raw);
}

TEST(NicList, OtherKindsAreRefusedByName) {
  for (const char* entry : {"mlx5:0:1", "soft:dpdk:0000:3b:00.0", "ofi:tcp",
                            "soft:udp:", "soft:udp:soft:raw:eth0", ",eth1", "^"}) {
    EXPECT_EQ(error(entry).code, ErrorCode::kInvalidArgument) << entry;
  }
  EXPECT_THAT(error("eth0,ofi:tcp").message, HasSubstr("ofi:tcp"));
}

TEST(NicList, MissingInterfaceIsNamedWithTheChoice) {
  for (const char* name : {"eth7", "down0", "bare0"}) {
    const Error missing = error(name);
    EXPECT_EQ(missing.code, ErrorCode::kNotFound) << name;
    EXPECT_THAT(missing.message, HasSubstr(name));
    EXPECT_THAT(missing.message, HasSubstr("soft:udp:eth0"));
  }
}

TEST(NicList, NothingLeftIsAnError) {
  EXPECT_EQ(error("^lo,^eth0,^eth1").code, ErrorCode::kNotFound);
  EXPECT_EQ(error("eth0,^eth0").code, ErrorCode::kNotFound);
  EXPECT_THAT(error("", {}).message, HasSubstr("none"));
}

}  // namespace
}  // namespace pacecar
