// SoftNic where a datagram costs the host much: what goes to one peer goes together.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "tests/support/soft_nic_traffic.h"

namespace pacecar::test::joins_test {
namespace {

using wire::PacketKind;

// Packets of one direction carry acknowledgements for packets of the other.
class SoftNicJoins : public ::testing::Test {
 protected:
  static SoftNicConfig config() {
    SoftNicConfig config = experiment();
    config.control_first = false;
    config.joins_packets = true;
    config.burst_bytes = 4 * kMtu;
    config.ack = {.bytes = 64 * kMtu, .delay = kDelay, .quiet = kDelay};
    return config;
  }
  // A packet of `bytes` goes to side 1, and later as much comes back.
  std::vector<Datagram> back_after(Duration wait, Bytes bytes) {
    const auto& there = pair_.memory(0, bytes);
    const auto& here = pair_.memory(1, bytes);
    pair_.post(0, ends_[0], SoftNicPair::write(there, here, bytes, 1));
    for (const Datagram& packet : pair_.transmit(0)) pair_.deliver(1, packet);
    pair_.now = pair_.now + wait;
    pair_.post(1, ends_[1], SoftNicPair::write(here, there, bytes, 2));
    return pair_.transmit(1);
  }
  bool completed_by(const std::vector<Datagram>& packets) {
    for (const Datagram& packet : packets) pair_.deliver(0, packet);
    pair_.collect();
    return pair_.completions[0].size() == 1;
  }

  static constexpr Duration kDelay = Duration::from_us(300);
  SoftNicPair pair_{config()};
  SoftNicPair::Ends ends_ = pair_.connect();
};

TEST_F(SoftNicJoins, AnAcknowledgementAndAShortPacketAreOneDatagram) {
  const auto back = back_after(kDelay / 2, 100);
  ASSERT_EQ(back.size(), 1U);
  EXPECT_TRUE(completed_by(back));
  pair_.now = pair_.now + kDelay * 2;
  EXPECT_TRUE(pair_.transmit(1).empty()) << "it has been said";
}

TEST_F(SoftNicJoins, AnAcknowledgementEndsABurstOfFullPackets) {
  pair_.connect();  // another queue pair of the same peer does not prevent it
  ends_[1] = pair_.connect()[1];
  const auto back = back_after(kDelay / 2, 2 * kMtu);
  ASSERT_EQ(back.size(), 3U);
  EXPECT_EQ(back[2].kind(), PacketKind::kAck);
  EXPECT_EQ(back[2].path, back[0].path);
  EXPECT_TRUE(completed_by(back));
}

TEST_F(SoftNicJoins, AWordThatMayOvertakeOthersGoesWithDataToItsPeer) {
  const auto words = pair_.connect({.paced = false});
  const auto& from = pair_.memory(1, 64, Access::kLocalRead, 7);
  const auto& to = pair_.memory(0, 64);
  WorkRequest word = SoftNicPair::write(from, to, 64, 3);
  word.passing = true;
  pair_.post(1, words[1], word);
  const auto back = back_after(kDelay / 2, 100);
  ASSERT_EQ(back.size(), 1U);
  EXPECT_TRUE(completed_by(back));
  EXPECT_EQ(to.bytes, from.bytes);
  word.passing = false;
  pair_.post(1, words[1], word);
  EXPECT_EQ(back_after(kDelay / 2, 100).size(), 2U);
}

// The acknowledgement of one queue pair goes with the data of a later one of the same peer, also
// when the first that knew the peer is gone.
TEST_F(SoftNicJoins, QueuePairsOfAPeerFindEachOtherAfterTheFirstIsDestroyed) {
  const auto first = ends_;
  ends_ = pair_.connect();
  for (size_t side = 0; side < 2; ++side) pair_.nic(side).destroy_queue_pair(first[side]);
  ends_[1] = pair_.connect()[1];
  const auto back = back_after(kDelay / 2, 100);
  ASSERT_EQ(back.size(), 1U);
  EXPECT_TRUE(completed_by(back));
}

TEST_F(SoftNicJoins, AFreshAcknowledgementMayWaitForMore) {
  const auto back = back_after(kDelay / 100, 100);
  ASSERT_EQ(back.size(), 1U);
  EXPECT_FALSE(completed_by(back));
}

// It has waited for a sixth of its time, or is one of many.
TEST_F(SoftNicJoins, AnAcknowledgementJoinsOnceItHasWaitedForAWhile) {
  EXPECT_FALSE(completed_by(back_after(kDelay / 6 - Duration::from_us(1), 100)));
  pair_.now = pair_.now + kDelay * 2;
  EXPECT_TRUE(completed_by(pair_.transmit(1)));
  pair_.completions[0].clear();
  EXPECT_TRUE(completed_by(back_after(kDelay / 6, 100)));
}

TEST_F(SoftNicJoins, AnAcknowledgementOfMostOfWhatMakesOneDueJoinsAtOnce) {
  for (const size_t packets : {5, 6}) {  // of eight
    for (size_t i = 1; i < packets; ++i) {
      pair_.post(0, ends_[0], SoftNicPair::write(pair_.memory(0, 8), pair_.memory(1, 8), 8));
    }
    for (const Datagram& packet : back_after(kDelay / 100, 100)) pair_.deliver(0, packet);
    pair_.collect();
    EXPECT_EQ(pair_.completions[0].size(), packets == 6 ? packets : 0);
    pair_.run_for(kDelay * 3);
    pair_.completions[0].clear();
  }
}

// With an MTU of 1500 a message of 16 KiB is many packets. One acknowledgement covers several such
// messages, also at a receiver whose own MTU is larger. Small messages count by their number.
TEST_F(SoftNicJoins, PacketsCountByTheirNumberOnlyIfTheyAreSmall) {
  SoftNicConfig sender = config();
  sender.burst_bytes = 32 * kMtu;
  SoftNicConfig receiver = sender;
  for (const Bytes mtu : {kMtu, 8 * kMtu}) {
    receiver.mtu = mtu;
    for (const Bytes bytes : {kMtu, Bytes{704}, Bytes{700}, kMtu / 4}) {
      SoftNicPair pair(sender, receiver);
      const auto ends = pair.connect();
      const auto& from = pair.memory(0, kMtu);
      const auto& to = pair.memory(1, kMtu);
      for (int i = 0; i < 12; ++i) pair.post(0, ends[0], SoftNicPair::write(from, to, bytes));
      const auto packets = pair.transmit(0);
      ASSERT_EQ(packets.size(), 12U);
      for (const Datagram& packet : packets) pair.deliver(1, packet);
      EXPECT_EQ(pair.transmit(1).size(), bytes < 704 ? 1U : 0U) << mtu << " " << bytes;
    }
  }
}

// Only control words overtake others: data has its pace.
TEST_F(SoftNicJoins, WhatIsPacedWaitsForItsRate) {
  const auto paced = pair_.connect({.flow = 1});
  pair_.limit(1, 1, {.rate = Rate(), .window = Bytes{1} << 40});
  const auto& from = pair_.memory(1, 64, Access::kLocalRead, 7);
  const auto& to = pair_.memory(0, 64);
  WorkRequest write = SoftNicPair::write(from, to, 64, 3);
  write.passing = true;
  pair_.post(1, paced[1], write);
  EXPECT_TRUE(completed_by(back_after(kDelay / 2, 100)));
  EXPECT_NE(to.bytes, from.bytes);
}

TEST_F(SoftNicJoins, AFreshAcknowledgementGoesBehindSeveralPackets) {
  for (const Bytes bytes : {2 * kMtu, 2 * kMtu + 100}) {
    EXPECT_TRUE(completed_by(back_after(kDelay / 100, bytes))) << bytes;
    pair_.completions[0].clear();
  }
}

}  // namespace
}  // namespace pacecar::test::joins_test
