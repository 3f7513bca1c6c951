// A software NIC that gets no acknowledgement asks which packets have arrived, and repeats only the
// packets that the answer shows to be lost.
#include <gtest/gtest.h>

#include "tests/support/soft_nic_pair.h"
#include "transport/base/seq.h"

namespace pacecar::question_test {
namespace {

using test::Datagram;
using test::SoftNicPair;
using wire::PacketKind;

// Shorter than any timeout.
constexpr Duration kBrief = Duration::from_us(100);
// Several timeouts, and shorter than the limit of silence.
constexpr Duration kLate = Duration::from_ms(50);

bool is_question(const Datagram& packet) {
  return packet.kind() == PacketKind::kData && packet.data().taken_back;
}

// A write of `packets` packets.
struct Stream {
  static constexpr Bytes kMtu = 1024;
  explicit Stream(size_t packets, SoftNicPair& pair)
      : from(pair.memory(0, packets * kMtu, Access::kLocalRead, 1)),
        to(pair.memory(1, packets * kMtu)),
        ends(pair.connect()) {
    pair.post(0, ends[0], SoftNicPair::write(from, to, packets * kMtu, 1));
  }
  const test::TestMemory& from;
  const test::TestMemory& to;
  SoftNicPair::Ends ends;
};

void expect_nothing_again(SoftNicPair& pair) {
  EXPECT_EQ(pair.nic(0).counters().packets_retransmitted, 0U);
  EXPECT_EQ(pair.nic(1).counters().duplicates, 0U);
}

TEST(SoftNicQuestion, APeerThatIsOnlyLateGetsNothingTwice) {
  SoftNicPair pair;
  const Stream stream(4, pair);
  const auto packets = pair.transmit_for(0, kLate);
  EXPECT_GT(packets.size(), 4U) << "it is asked";
  for (const Datagram& packet : packets) pair.deliver(1, packet);
  ASSERT_TRUE(pair.run_until_completed(0, 1));
  EXPECT_EQ(stream.to.bytes, stream.from.bytes);
  expect_nothing_again(pair);
}

TEST(SoftNicQuestion, LostAcknowledgementsRepeatNothing) {
  SoftNicPair pair;
  const Stream stream(4, pair);
  pair.lose = [&](size_t from, Datagram& packet) {
    return from == 1 && packet.kind() == PacketKind::kAck &&
           pair.now < Instant::from_ns(1'000'000'000) + kLate;
  };
  ASSERT_TRUE(pair.run_until_completed(0, 1));
  EXPECT_EQ(stream.to.bytes, stream.from.bytes);
  expect_nothing_again(pair);
}

// The packet with which the sender asks is then as old as a receiver ever sees one.
TEST(SoftNicQuestion, IsAnsweredWhenAWholeWindowIsUnacknowledged) {
  SoftNicPair pair;
  const uint32_t window = SoftNicPair::default_config().window_packets;
  const Stream stream(2 * window, pair);
  for (const Datagram& packet : pair.transmit_for(0, kBrief)) pair.deliver(1, packet);
  EXPECT_EQ(pair.nic(1).counters().data_packets_received, window);
  EXPECT_FALSE(pair.transmit(1).empty()) << "they are lost";
  ASSERT_TRUE(pair.run_until_completed(0, 1));
  EXPECT_EQ(stream.to.bytes, stream.from.bytes);
  expect_nothing_again(pair);
}

TEST(SoftNicQuestion, HasANumberBeforeTheFirstPacketWhereThatIsZero) {
  uint32_t count = 0;
  const auto without_low_bits = [](void* at) { return ++*static_cast<uint32_t*>(at) << kPsnBits; };
  SoftNicPair pair(SoftNicPair::default_config(), RandomSource{without_low_bits, &count});
  const Stream stream(4, pair);
  const auto packets = pair.transmit_for(0, kLate);
  ASSERT_EQ(packets.front().data().psn, 0U);
  for (const Datagram& packet : packets) {
    if (is_question(packet)) pair.deliver(1, packet);  // the others are lost
  }
  EXPECT_EQ(pair.nic(1).counters().out_of_window, 0U);
  ASSERT_TRUE(pair.run_until_completed(0, 1));
  EXPECT_EQ(stream.to.bytes, stream.from.bytes);
}

TEST(SoftNicQuestion, AllThatIsLostGoesAgainOnce) {
  SoftNicPair pair;
  const Stream stream(8, pair);
  size_t data = 0;
  pair.lose = [&](size_t from, Datagram&) { return from == 0 && ++data <= 8; };
  ASSERT_TRUE(pair.run_until_completed(0, 1));
  EXPECT_EQ(stream.to.bytes, stream.from.bytes);
  EXPECT_EQ(pair.nic(0).counters().packets_retransmitted, 8U);
  EXPECT_EQ(pair.nic(1).counters().duplicates, 0U);
  std::array<FlowSignal, 4> signals;
  ASSERT_EQ(pair.nic(0).poll_signals(signals), 1U);
  EXPECT_EQ(signals[0].lost, 7 * Stream::kMtu) << "one packet would be no sign of congestion";
}

// Where round trips are short, it need not wait until silence means congestion.
TEST(SoftNicQuestion, IsAskedAgainSoon) {
  SoftNicPair pair;
  const Stream stream(4, pair);
  ASSERT_TRUE(pair.run_until_completed(0, 1)) << "the round trip is known now";
  size_t sent = 0;
  pair.lose = [&](size_t from, Datagram&) { return from == 0 && ++sent <= 2; };
  const Instant begin = pair.now;
  pair.post(0, stream.ends[0], SoftNicPair::write(stream.from, stream.to, Stream::kMtu, 2));
  ASSERT_TRUE(pair.run_until_completed(0, 2));
  EXPECT_LT(pair.now - begin, LossRecovery{}.min_timeout) << "the packet and a question were lost";
  EXPECT_EQ(pair.nic(0).counters().timeouts, 0U);
}

// Packets that were sent later have arrived, so that the question comes after a shorter silence.
TEST(SoftNicQuestion, ComesSoonAfterWhatWasOvertaken) {
  SoftNicPair pair;
  const Stream stream(8, pair);
  ASSERT_TRUE(pair.run_until_completed(0, 1)) << "the round trip is known now";
  pair.limit(0, 0, {.rate = Rate::from_gbps(10), .window = Bytes{1} << 40, .burst = Stream::kMtu});
  size_t sent = 0;
  pair.lose = [&](size_t from, Datagram&) { return from == 0 && ++sent == 5; };
  const Instant begin = pair.now;
  pair.post(0, stream.ends[0], SoftNicPair::write(stream.from, stream.to, 8 * Stream::kMtu, 2));
  ASSERT_TRUE(pair.run_until_completed(0, 2));
  EXPECT_LT(pair.now - begin, LossRecovery{}.min_probe);
  EXPECT_EQ(pair.nic(0).counters().packets_retransmitted, 1U);
  EXPECT_EQ(pair.nic(1).counters().duplicates, 0U);
}

TEST(SoftNicQuestion, NeedNotBeAskedWhileOthersAreOnTheirWay) {
  SoftNicPair pair;
  const Stream stream(8, pair);
  ASSERT_TRUE(pair.run_until_completed(0, 1));
  pair.limit(0, 0, {.rate = Rate::from_gbps(10), .window = Bytes{1} << 40, .burst = Stream::kMtu});
  size_t sent = 0;
  size_t questions = 0;
  pair.lose = [&](size_t side, Datagram& packet) {
    if (side == 1) return false;
    questions += is_question(packet) ? 1 : 0;
    return ++sent == 5;
  };
  const auto& from = pair.memory(0, 64 * Stream::kMtu, Access::kLocalRead);
  const auto& to = pair.memory(1, 64 * Stream::kMtu);
  pair.post(0, stream.ends[0], SoftNicPair::write(from, to, 64 * Stream::kMtu, 2));
  ASSERT_TRUE(pair.run_until_completed(0, 2));
  EXPECT_EQ(pair.nic(0).counters().packets_retransmitted, 1U);
  EXPECT_EQ(questions, 0U);
}

// Another queue pair's answers tell how long to wait for the first one.
TEST(SoftNicQuestion, ComesSoonWhereTheWayIsKnown) {
  SoftNicPair pair;
  const auto words = pair.connect({.flow = 1, .paced = false});
  const auto& from = pair.memory(0, 8 * Stream::kMtu, Access::kLocalRead);
  const auto& to = pair.memory(1, 8 * Stream::kMtu);
  pair.post(0, words[0], SoftNicPair::write(from, to, 8, 1));
  ASSERT_TRUE(pair.run_until_completed(0, 1));
  const auto ends = pair.connect();
  size_t sent = 0;
  pair.lose = [&](size_t side, Datagram&) { return side == 0 && ++sent <= 8; };
  const Instant begin = pair.now;
  pair.post(0, ends[0], SoftNicPair::write(from, to, 8 * Stream::kMtu, 2));
  ASSERT_TRUE(pair.run_until_completed(0, 2));
  EXPECT_LT(pair.now - begin, LossRecovery{}.min_timeout);
}

TEST(SoftNicQuestion, TakesNothingAlongThatMustWait) {
  SoftNicPair pair;
  const Stream stream(8, pair);
  const Duration per_packet = Duration::from_ms(100);
  pair.limit(0, 0, {.rate = Rate::from_bps(Stream::kMtu * 8 * 10), .window = Bytes{1} << 40});
  const size_t first = pair.transmit(0).size();
  ASSERT_LT(first, 8U);
  const auto later = pair.transmit_for(0, per_packet / 2);
  EXPECT_FALSE(later.empty());
  for (const Datagram& packet : later) EXPECT_TRUE(is_question(packet));
}

}  // namespace
}  // namespace pacecar::question_test
