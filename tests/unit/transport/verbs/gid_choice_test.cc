#include "transport/verbs/gid_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace pacecar::gid_choice_test {
namespace {

using testing::HasSubstr;

constexpr std::array<uint8_t, 16> kIpv4{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 192, 0, 2, 1};
constexpr std::array<uint8_t, 16> kGlobal{0x20, 0x01, 0x0D, 0xB8, 0, 0, 0, 0,
                                          0,    0,    0,    0,    0, 0, 0, 1};
constexpr std::array<uint8_t, 16> kLocal{0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7};

using Entries = std::vector<GidEntry>;

uint32_t chosen(const Entries& entries) {
  const auto choice = choose_gid(LinkLayer::kEthernet, entries, std::nullopt);
  EXPECT_TRUE(choice);
  EXPECT_EQ(choice->warning, "");
  return choice->entry.index;
}

TEST(GidChoice, Ipv4ComesFirstThenGlobalIpv6) {
  const GidEntry local{0, GidKind::kRoceV2, kLocal};
  const GidEntry global{1, GidKind::kRoceV2, kGlobal};
  const GidEntry ipv4{2, GidKind::kRoceV2, kIpv4};
  EXPECT_EQ(chosen({local, global, ipv4}), 2U);
  EXPECT_EQ(chosen({ipv4, global, local}), 2U);
  EXPECT_EQ(chosen({local, global}), 1U);
}

TEST(GidChoice, FirstOfEqualPreferenceIsChosen) {
  EXPECT_EQ(chosen({{5, GidKind::kRoceV2, kIpv4}, {6, GidKind::kRoceV2, kIpv4}}), 5U);
}

TEST(GidChoice, RoceV1EmptyAndInfinibandEntriesAreNotChosen) {
  EXPECT_EQ(chosen({{0, GidKind::kRoceV1, kIpv4}, {1, GidKind::kRoceV2, kGlobal}}), 1U);
  for (const Entries& entries :
       {Entries{}, Entries{{0, GidKind::kRoceV1, kIpv4}}, Entries{{0, GidKind::kRoceV2, {}}},
        Entries{{0, GidKind::kInfiniband, kGlobal}}}) {
    const auto choice = choose_gid(LinkLayer::kEthernet, entries, std::nullopt);
    ASSERT_FALSE(choice);
    EXPECT_EQ(choice.error().code, ErrorCode::kNotFound);
    EXPECT_THAT(choice.error().message, HasSubstr("IP address"));
  }
}

TEST(GidChoice, LinkLocalIsChosenLastAndWithAWarning) {
  const auto choice =
      choose_gid(LinkLayer::kEthernet, Entries{{3, GidKind::kRoceV2, kLocal}}, std::nullopt);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->entry.index, 3U);
  EXPECT_THAT(choice->warning, HasSubstr("link-local (fe80::7)"));
}

TEST(GidChoice, ConfiguredIndexOverridesThePreference) {
  const Entries entries{{2, GidKind::kRoceV2, kIpv4}, {4, GidKind::kRoceV2, kGlobal}};
  const auto choice = choose_gid(LinkLayer::kEthernet, entries, 4);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->entry.index, 4U);
}

TEST(GidChoice, InfinibandUsesTheFirstOrTheConfiguredEntry) {
  const Entries entries{{0, GidKind::kInfiniband, kLocal}, {1, GidKind::kInfiniband, kGlobal}};
  EXPECT_EQ(choose_gid(LinkLayer::kInfiniband, entries, {})->entry.gid, kLocal);
  EXPECT_EQ(choose_gid(LinkLayer::kInfiniband, entries, 1)->entry.gid, kGlobal);
  EXPECT_EQ(choose_gid(LinkLayer::kInfiniband, entries, 2).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(choose_gid(LinkLayer::kInfiniband, {}, {}).error().code, ErrorCode::kNotFound);
}

TEST(GidChoice, UnusableConfiguredIndexIsRefusedWithTheTable) {
  const Entries entries{{2, GidKind::kRoceV2, kIpv4}, {3, GidKind::kRoceV1, kIpv4}};
  for (const uint32_t wanted : {3, 9}) {
    const auto choice = choose_gid(LinkLayer::kEthernet, entries, wanted);
    ASSERT_FALSE(choice);
    EXPECT_EQ(choice.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(choice.error().message, HasSubstr("2 (RoCE v2, ::ffff:192.0.2.1)"));
    EXPECT_THAT(choice.error().message, HasSubstr("3 (RoCE v1"));
  }
}

TEST(GidIndex, IsANumberUpTo255OrEmpty) {
  EXPECT_EQ(parse_gid_index("").value(), std::nullopt);
  EXPECT_EQ(parse_gid_index("0").value(), 0U);
  EXPECT_EQ(parse_gid_index("255").value(), 255U);
  for (const char* text : {"-1", "256", "3x", " 3", "x", "4294967297"}) {
    const auto index = parse_gid_index(text);
    ASSERT_FALSE(index) << text;
    EXPECT_EQ(index.error().code, ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace pacecar::gid_choice_test
