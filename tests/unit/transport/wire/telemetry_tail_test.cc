#include "transport/wire/telemetry_tail.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace pacecar::wire::telemetry_tail_test {
namespace {

constexpr size_t kLeastPacket = kDataHeaderBytes + kChecksumBytes;
constexpr std::array<TelemetryHop, 2> kHops = {
    {{.time_ns = 0x01020304,
      .sent_bytes = 0x11121314,
      .queue_bytes = 0x21222324,
      .rate_mbps = 0x31323334},
     {.time_ns = 0x41424344, .sent_bytes = 0x51525354, .queue_bytes = 0x61626364, .rate_mbps = 1}}};
// The layout in README.md.
constexpr std::array<uint8_t, 36> kTail = {0x01, 0x02, 0x03, 0x04, 0x11, 0x12, 0x13, 0x14, 0x21,
                                           0x22, 0x23, 0x24, 0x31, 0x32, 0x33, 0x34, 0x41, 0x42,
                                           0x43, 0x44, 0x51, 0x52, 0x53, 0x54, 0x61, 0x62, 0x63,
                                           0x64, 0x00, 0x00, 0x00, 0x01, 'I',  'N',  'T',  2};

// A packet of that size with these bytes behind it.
std::vector<uint8_t> with_tail(size_t packet, std::span<const uint8_t> tail) {
  std::vector<uint8_t> datagram(packet, 0xEE);
  datagram.insert(datagram.end(), tail.begin(), tail.end());
  return datagram;
}

TEST(TelemetryTail, EncodesTheGoldenBytes) {
  ASSERT_EQ(telemetry_tail_bytes(kHops.size()), kTail.size());
  std::array<uint8_t, kTail.size()> out{};
  encode_telemetry_tail(kHops, out);
  EXPECT_THAT(out, testing::ElementsAreArray(kTail));
}

TEST(TelemetryTail, DecodesTheGoldenBytes) {
  std::array<TelemetryHop, kMaxTelemetryHops> hops{};
  ASSERT_EQ(decode_telemetry_tail(kTail, hops), kHops.size());
  EXPECT_EQ(hops[0], kHops[0]);
  EXPECT_EQ(hops[1], kHops[1]);
  EXPECT_EQ(hops[2], TelemetryHop{});
}

TEST(TelemetryTail, TailIsFoundOnlyBehindAWholePacket) {
  EXPECT_EQ(find_telemetry_tail(with_tail(kLeastPacket, kTail)), kTail.size());
  EXPECT_EQ(find_telemetry_tail(with_tail(kLeastPacket + 100, kTail)), kTail.size());
  EXPECT_EQ(find_telemetry_tail(with_tail(kLeastPacket - 1, kTail)), 0U);
  EXPECT_EQ(find_telemetry_tail(with_tail(1, std::span(kTail).last(4))), 0U);
  std::array<uint8_t, telemetry_tail_bytes(1)> one{};
  encode_telemetry_tail(std::span(kHops).first(1), one);
  EXPECT_EQ(find_telemetry_tail(with_tail(kLeastPacket, one)), one.size());
  EXPECT_EQ(find_telemetry_tail(with_tail(kLeastPacket - 1, one)), 0U);
}

TEST(TelemetryTail, TailHoldsOneToTheMaximumOfHops) {
  const std::vector<TelemetryHop> most(kMaxTelemetryHops, kHops[0]);
  std::vector<uint8_t> tail(telemetry_tail_bytes(most.size()));
  encode_telemetry_tail(most, tail);
  EXPECT_EQ(find_telemetry_tail(with_tail(kLeastPacket, tail)), tail.size());
  tail.back() = kMaxTelemetryHops + 1;
  EXPECT_EQ(find_telemetry_tail(with_tail(kLeastPacket + 100, tail)), 0U);
  tail.back() = 0;
  EXPECT_EQ(find_telemetry_tail(with_tail(kLeastPacket + 100, tail)), 0U);
}

TEST(TelemetryTail, TailNeedsItsMarkAndNonzeroRates) {
  for (const size_t at : {32, 33, 34}) {
    auto other = kTail;
    other[at] ^= 1;
    EXPECT_EQ(find_telemetry_tail(with_tail(kLeastPacket, other)), 0U) << at;
  }
  for (const size_t hop : {0, 1}) {
    auto without = kTail;
    std::fill_n(without.begin() + static_cast<ptrdiff_t>(16 * hop + 12), 4, uint8_t{0});
    EXPECT_EQ(find_telemetry_tail(with_tail(kLeastPacket, without)), 0U) << hop;
  }
}

}  // namespace
}  // namespace pacecar::wire::telemetry_tail_test
