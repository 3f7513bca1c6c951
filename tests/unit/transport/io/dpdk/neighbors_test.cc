#include "transport/io/dpdk/neighbors/neighbors.h"

#include <gtest/gtest.h>

#include "transport/base/prng.h"
#include "transport/wire/address.h"

namespace pacecar::neighbors_test {
namespace {

using Kind = NeighborMessage::Kind;

constexpr Instant kStart = Instant::from_ns(1'000'000'000'000);

Neighbors::Self host(uint8_t number, bool ipv4) {
  const MacAddress mac = {2, 0, 0, 0, 0, number};
  if (!ipv4) return {.mac = mac, .address = link_local_address(mac)};
  return {.mac = mac,
          .address = {.ip = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 192, 0, 2, number}}};
}

// The message after encoding to a frame and decoding.
NeighborMessage carried(const NeighborMessage& message) {
  std::array<uint8_t, kMaxNeighborMessageBytes> frame{};
  const size_t length = write_neighbor_message(message, std::nullopt, frame);
  const auto read = read_neighbor_message(std::span(frame).first(length));
  EXPECT_TRUE(read);
  return read.value_or(NeighborMessage{});
}

class NeighborsOf : public testing::TestWithParam<bool> {
 protected:
  Neighbors a_{host(1, GetParam())};
  Neighbors b_{host(2, GetParam())};
};
INSTANTIATE_TEST_SUITE_P(Families, NeighborsOf, testing::Bool());

TEST_P(NeighborsOf, QuestionIsAnsweredAndBothKnowEachOther) {
  const auto first = a_.find(b_.self().address, kStart);
  EXPECT_EQ(first.headers, nullptr);
  EXPECT_TRUE(first.ask);
  const auto answer = b_.receive(carried(a_.question(b_.self().address)), kStart);
  ASSERT_TRUE(answer);
  EXPECT_NE(b_.find(a_.self().address, kStart).headers, nullptr);
  EXPECT_FALSE(a_.receive(carried(*answer), kStart));
  const auto found = a_.find(b_.self().address, kStart);
  ASSERT_NE(found.headers, nullptr);
  EXPECT_FALSE(found.ask);
  std::array<uint8_t, kMaxFrameHeaderBytes> bytes{};
  found.headers->write(1, 2, 0, 10, bytes.data());
  EXPECT_TRUE(std::ranges::equal(std::span(bytes).first(6), b_.self().mac));
}

TEST_P(NeighborsOf, AnnouncementOfANewHostIsAnswered) {
  const auto answer = a_.receive(carried(b_.announcement()), kStart);
  ASSERT_TRUE(answer);
  EXPECT_FALSE(b_.receive(carried(*answer), kStart));
  EXPECT_NE(b_.find(a_.self().address, kStart).headers, nullptr);
  EXPECT_NE(a_.find(b_.self().address, kStart).headers, nullptr);
  EXPECT_FALSE(a_.receive(carried(b_.announcement()), kStart))
      << "an announcement of a known host is not answered";
}

TEST_P(NeighborsOf, QuestionsAreRepeatedInIntervalsUntilAnswered) {
  EXPECT_TRUE(a_.find(b_.self().address, kStart).ask);
  EXPECT_FALSE(a_.find(b_.self().address, kStart + Neighbors::kAskInterval).ask);
  const Instant later = kStart + Neighbors::kAskInterval * 2;
  EXPECT_TRUE(a_.find(b_.self().address, later).ask);
  a_.receive(b_.announcement(), later);
  EXPECT_FALSE(a_.find(b_.self().address, later + Neighbors::kFresh).ask);
  const auto stale = a_.find(b_.self().address, later + Neighbors::kFresh * 2);
  EXPECT_TRUE(stale.ask);
  EXPECT_NE(stale.headers, nullptr) << "a stale entry is used until a new one arrives";
}

TEST_P(NeighborsOf, QuestionsToOthersAreIgnored) {
  const Neighbors c(host(3, GetParam()));
  EXPECT_FALSE(a_.receive(carried(b_.question(c.self().address)), kStart));
  EXPECT_EQ(a_.find(b_.self().address, kStart).headers, nullptr);
}

TEST_P(NeighborsOf, OwnAddressIsKnownAndCannotBeClaimed) {
  EXPECT_NE(a_.find(a_.self().address, kStart).headers, nullptr);
  NeighborMessage thief = b_.announcement();
  thief.sender = a_.self().address;
  EXPECT_FALSE(a_.receive(thief, kStart));
}

TEST_P(NeighborsOf, NewMacReplacesTheOld) {
  a_.receive(b_.announcement(), kStart);
  NeighborMessage moved = b_.announcement();
  moved.sender_mac = {2, 0, 0, 0, 0, 9};
  a_.receive(moved, kStart);
  std::array<uint8_t, kMaxFrameHeaderBytes> bytes{};
  a_.find(b_.self().address, kStart).headers->write(1, 2, 0, 10, bytes.data());
  EXPECT_EQ(bytes[5], 9);
}

TEST_P(NeighborsOf, NewNeighborsEvictOldOnesButNeverTheOwnAddress) {
  Prng prng(3);
  for (size_t i = 0; i < 10 * Neighbors::kCapacity; ++i) {
    NeighborMessage stranger = b_.announcement();
    for (size_t byte = 13; byte < 16; ++byte) {
      stranger.sender.ip[byte] = static_cast<uint8_t>(prng.next_u64());
    }
    a_.receive(stranger, kStart + Duration::from_us(static_cast<int64_t>(i)));
    const bool ours = stranger.sender.ip == a_.self().address.ip;
    EXPECT_TRUE(ours || a_.find(stranger.sender, kStart).headers != nullptr);
  }
  EXPECT_NE(a_.find(a_.self().address, kStart).headers, nullptr);
}

uint8_t destination_of(const Neighbors::Found& found) {
  std::array<uint8_t, kMaxFrameHeaderBytes> bytes{};
  if (found.headers != nullptr) found.headers->write(1, 2, 0, 10, bytes.data());
  return bytes[5];
}

// Host 1, with host 2 as the gateway to all hosts but host 3.
class NeighborsBehind : public testing::TestWithParam<bool> {
 protected:
  static Address next_hop(const Address& to) {
    const uint8_t number = to.ip[15];
    return number == 1 || number == 3 ? to : host(2, GetParam()).address;
  }
  const Address far_ = host(9, GetParam()).address;
  Neighbors a_{host(1, GetParam()), next_hop};
  Neighbors gateway_{host(2, GetParam())};
};
INSTANTIATE_TEST_SUITE_P(Families, NeighborsBehind, testing::Bool());

TEST_P(NeighborsBehind, PacketsBehindAGatewayUseTheGatewaysMac) {
  EXPECT_TRUE(a_.find(far_, kStart).ask);
  const auto answer = gateway_.receive(carried(a_.question(far_)), kStart);
  ASSERT_TRUE(answer);
  a_.receive(carried(*answer), kStart);
  EXPECT_EQ(destination_of(a_.find(far_, kStart)), 2);
  const auto second = a_.find(host(10, GetParam()).address, kStart);
  EXPECT_EQ(destination_of(second), 2) << "another host behind the gateway needs no question";
  EXPECT_FALSE(second.ask);
  std::array<uint8_t, kMaxFrameHeaderBytes> bytes{};
  second.headers->write(1, 2, 0, 10, bytes.data());
  EXPECT_EQ(bytes[GetParam() ? 33 : 53], host(10, GetParam()).address.ip[15])
      << "the IP destination is the host itself";
}

TEST_P(NeighborsBehind, NewMacOfTheGatewayServesHostsBehindIt) {
  a_.receive(gateway_.announcement(), kStart);
  EXPECT_EQ(destination_of(a_.find(far_, kStart)), 2);
  NeighborMessage moved = gateway_.announcement();
  moved.sender_mac[5] = 7;
  const Instant later = kStart + Neighbors::kFresh * 2;
  EXPECT_TRUE(a_.find(far_, later).ask);
  a_.receive(moved, later);
  EXPECT_EQ(destination_of(a_.find(far_, later)), 7);
  EXPECT_FALSE(a_.find(far_, later + Neighbors::kAskInterval * 2).ask);
}

TEST_P(NeighborsBehind, HostsBehindTheGatewayCannotClaimToBeOnTheLink) {
  a_.receive(gateway_.announcement(), kStart);
  const Neighbors liar(host(9, GetParam()));
  EXPECT_FALSE(a_.receive(carried(liar.announcement()), kStart));
  EXPECT_EQ(destination_of(a_.find(far_, kStart)), 2);
  a_.receive(Neighbors(host(3, GetParam())).announcement(), kStart);
  EXPECT_EQ(destination_of(a_.find(host(3, GetParam()).address, kStart)), 3);
}

TEST(NeighborMessage, CutOrDamagedMessageYieldsNoMulticastSender) {
  for (const bool ipv4 : {true, false}) {
    const Neighbors a(host(1, ipv4));
    std::array<uint8_t, kMaxNeighborMessageBytes> frame{};
    const size_t length =
        write_neighbor_message(a.question(host(2, ipv4).address), std::nullopt, frame);
    for (size_t cut = 0; cut < length; ++cut) {
      const std::vector<uint8_t> bytes(frame.begin(), frame.begin() + static_cast<ptrdiff_t>(cut));
      EXPECT_FALSE(read_neighbor_message(bytes)) << cut;
    }
    Prng prng(5);
    for (int i = 0; i < 2000; ++i) {
      std::vector<uint8_t> bytes(frame.begin(), frame.begin() + static_cast<ptrdiff_t>(length));
      bytes[prng.below(length)] ^= static_cast<uint8_t>(1 + prng.below(255));
      const auto read = read_neighbor_message(bytes);
      EXPECT_TRUE(!read || (read->sender_mac[0] & 1) == 0);
    }
  }
}

TEST(NeighborMessage, MulticastMacIsRefused) {
  NeighborMessage message = Neighbors(host(1, true)).announcement();
  for (const MacAddress mac : {kBroadcastMac, MacAddress{}, MacAddress{1, 0, 0, 0, 0, 1}}) {
    message.sender_mac = mac;
    std::array<uint8_t, kMaxNeighborMessageBytes> frame{};
    const size_t length = write_neighbor_message(message, std::nullopt, frame);
    EXPECT_FALSE(read_neighbor_message(std::span(frame).first(length)));
  }
}

TEST(NeighborMessage, LinkLocalAddressContainsTheMac) {
  EXPECT_EQ(ip_to_string(link_local_address({0x02, 0x11, 0x22, 0x33, 0x44, 0x55})),
            "fe80::11:22ff:fe33:4455");
}

}  // namespace
}  // namespace pacecar::neighbors_test
