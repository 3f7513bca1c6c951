// Unreliable connections (UC) of the software NIC: nothing is acknowledged, and a message that does
// not arrive whole, or may not, is dropped without harm to the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/standard_pair.h"

namespace pacecar::unreliable_test {
namespace {

using test::Datagram;
using test::forge;
using test::parse;
using test::StandardPair;
using test::TestMemory;

class SoftNicUnreliable : public testing::Test {
 protected:
  static constexpr Bytes kLong = 3000;  // three packets

  void post_receive(uint64_t id) {
    const auto receive = StandardPair::receive(to_, id);
    ASSERT_EQ(pair_.nic(1).post_receives(ends_[1], {&receive, 1}), 1U);
  }
  // Loses the packet of that index, from here on.
  void lose(size_t index) {
    pair_.lose = [index, count = size_t{0}](size_t, Datagram&) mutable { return count++ == index; };
  }
  std::vector<uint64_t> received() const {
    std::vector<uint64_t> ids;
    for (const Completion& one : pair_.completions[1]) ids.push_back(one.work_request);
    return ids;
  }

  StandardPair pair_;
  StandardPair::Ends ends_ = pair_.join_unreliably();
  TestMemory& from_ = pair_.memory(0, kLong, Access::kLocalRead, 1);
  TestMemory& to_ = pair_.memory(1, kLong, Access::kRemoteAll, 0xEE);
};

TEST_F(SoftNicUnreliable, MessagesArriveAndNothingIsAnswered) {
  post_receive(17);
  post_receive(18);
  size_t answers = 0;
  pair_.lose = [&](size_t from, Datagram& datagram) {
    EXPECT_TRUE(from == 1 || parse(datagram).unreliable);
    EXPECT_TRUE(from == 1 || !parse(datagram).ack_request);
    answers += from;
    return false;
  };
  pair_.post(0, ends_[0], StandardPair::send(from_, kLong, 1));
  pair_.post(0, ends_[0], StandardPair::write(from_, to_, kLong, 2, 0xC0FFEE));
  pair_.post(0, ends_[0], StandardPair::write(from_, to_, 0, 3));
  ASSERT_TRUE(pair_.run_until_completed(0, 3));
  ASSERT_TRUE(pair_.run_until_completed(1, 2));
  pair_.run_for(Duration::from_s(1));
  EXPECT_EQ(answers, 0U);
  EXPECT_EQ(to_.bytes, from_.bytes);
  EXPECT_THAT(received(), testing::ElementsAre(17, 18));
  EXPECT_EQ(pair_.completions[1][0].bytes, kLong);
  EXPECT_EQ(pair_.completions[1][1].immediate, 0xC0FFEEU);
  for (const Completion& done : pair_.completions[0]) EXPECT_EQ(done.status, CompletionStatus::kOk);
}

// The packet I/O has what poll_transmit gave when it is called again: the program may reuse the
// memory only then.
TEST_F(SoftNicUnreliable, ASendIsDoneWhenItsPacketsAreHandedOver) {
  post_receive(17);
  pair_.post(0, ends_[0], StandardPair::send(from_, 64, 1));
  std::array<TxPacket, 16> packets;
  ASSERT_EQ(pair_.nic(0).poll_transmit(pair_.now, packets), 1U);
  pair_.collect();
  EXPECT_TRUE(pair_.completions[0].empty());
  EXPECT_LE(pair_.nic(0).next_deadline(), pair_.now);
  EXPECT_EQ(pair_.nic(0).poll_transmit(pair_.now, packets), 0U);
  pair_.collect();
  EXPECT_EQ(pair_.completions[0].size(), 1U);
  EXPECT_EQ(pair_.nic(0).next_deadline(), Instant::never());
}

TEST_F(SoftNicUnreliable, AMessageWithoutOneOfItsPacketsIsDropped) {
  for (size_t lost = 0; lost < 3; ++lost) {
    SCOPED_TRACE(lost);
    pair_.completions = {};
    post_receive(17 + lost);
    lose(lost);
    pair_.post(0, ends_[0], StandardPair::send(from_, kLong, 1));
    ASSERT_TRUE(pair_.run_until_completed(0, 1));
    pair_.run_for(Duration::from_ms(10));
    EXPECT_TRUE(received().empty());
    // The next one takes its receive request.
    pair_.post(0, ends_[0], StandardPair::send(from_, kLong, 2));
    ASSERT_TRUE(pair_.run_until_completed(1, 1));
    EXPECT_THAT(received(), testing::ElementsAre(17 + lost));
    EXPECT_EQ(to_.bytes, from_.bytes);
  }
}

TEST_F(SoftNicUnreliable, ASendWithoutReceiveRequestIsDropped) {
  pair_.post(0, ends_[0], StandardPair::send(from_, kLong, 1));
  pair_.run_for(Duration::from_ms(10));
  post_receive(17);
  pair_.run_for(Duration::from_ms(10));
  EXPECT_TRUE(received().empty());
  pair_.post(0, ends_[0], StandardPair::send(from_, 10, 2));
  ASSERT_TRUE(pair_.run_until_completed(1, 1));
  EXPECT_EQ(pair_.completions[1][0].bytes, 10U);
}

TEST_F(SoftNicUnreliable, WhatIsRefusedEndsNothing) {
  post_receive(17);
  WorkRequest write = StandardPair::write(from_, to_, kLong, 1);
  write.remote_key ^= 1;
  pair_.post(0, ends_[0], write);
  WorkRequest beyond = StandardPair::write(from_, to_, kLong, 2);
  beyond.remote += 1;
  pair_.post(0, ends_[0], beyond);
  auto& longer = pair_.memory(0, kLong + 1, Access::kLocalRead);
  pair_.post(0, ends_[0], StandardPair::send(longer, kLong + 1, 3));
  pair_.post(0, ends_[0], StandardPair::send(from_, kLong, 4));
  ASSERT_TRUE(pair_.run_until_completed(0, 4));
  ASSERT_TRUE(pair_.run_until_completed(1, 1));
  EXPECT_THAT(received(), testing::ElementsAre(17));
  EXPECT_EQ(pair_.completions[1][0].bytes, kLong);
  EXPECT_EQ(to_.bytes, from_.bytes);
  for (const Completion& done : pair_.completions[0]) EXPECT_EQ(done.status, CompletionStatus::kOk);
  EXPECT_GE(pair_.nic(1).counters().access_errors, 3U);
}

TEST_F(SoftNicUnreliable, OurReceivesMemoryThatIsGoneEndsIt) {
  post_receive(17);
  pair_.nic(1).deregister_memory(to_.region);
  pair_.post(0, ends_[0], StandardPair::send(from_, kLong, 1));
  ASSERT_TRUE(pair_.run_until_completed(1, 1));
  EXPECT_EQ(pair_.completions[1][0].kind, CompletionKind::kBroken);
  EXPECT_EQ(pair_.completions[1][0].status, CompletionStatus::kReceiveGone);
  const auto rest = pair_.nic(1).take_back(ends_[1]);
  ASSERT_TRUE(rest.receive);
  EXPECT_EQ(rest.receive->id, 17U);
}

TEST_F(SoftNicUnreliable, PacketsOfAnotherServiceAreDropped) {
  post_receive(17);
  const std::vector<uint8_t> payload(10, 7);
  roce::Packet packet{.opcode = roce::Opcode::kSendOnly,
                      .destination_qp = ends_[1],
                      .psn = StandardPair::kFirstPsn[0],
                      .payload = payload};
  pair_.deliver(1, forge(0, packet));
  for (const auto opcode : {roce::Opcode::kAck, roce::Opcode::kReadRequest}) {
    pair_.deliver(1, forge(0, {.opcode = opcode, .destination_qp = ends_[1]}));
  }
  pair_.run_for(Duration::from_ms(10));
  EXPECT_TRUE(received().empty());
  EXPECT_EQ(pair_.nic(1).counters().malformed, 3U);
  packet.unreliable = true;
  pair_.deliver(1, forge(0, packet));
  pair_.collect();
  EXPECT_THAT(received(), testing::ElementsAre(17));

  StandardPair reliable;
  const auto ends = reliable.join();
  packet.destination_qp = ends[1];
  reliable.deliver(1, forge(0, packet));
  EXPECT_EQ(reliable.nic(1).counters().malformed, 1U);
}

TEST_F(SoftNicUnreliable, AMessageEndsWithTheFirstPacketOfTheNext) {
  post_receive(17);
  ASSERT_TRUE(pair_.transmit(1).empty());
  const std::vector<uint8_t> payload(1024, 7);
  roce::Packet packet{.opcode = roce::Opcode::kSendFirst,
                      .unreliable = true,
                      .destination_qp = ends_[1],
                      .psn = StandardPair::kFirstPsn[0],
                      .payload = payload};
  pair_.deliver(1, forge(0, packet));
  packet.opcode = roce::Opcode::kSendOnly;
  ++packet.psn;
  pair_.deliver(1, forge(0, packet));
  pair_.collect();
  EXPECT_THAT(received(), testing::ElementsAre(17));
  EXPECT_EQ(pair_.completions[1][0].bytes, 1024U);
  EXPECT_EQ(pair_.nic(1).next_deadline(), Instant::never()) << "there is nothing to answer";
}

TEST_F(SoftNicUnreliable, CongestionIsSignaled) {
  pair_.lose = [](size_t, Datagram& datagram) {
    datagram.ecn = Ecn::kCongestion;
    return false;
  };
  pair_.post(0, ends_[0], StandardPair::write(from_, to_, kLong, 1));
  ASSERT_TRUE(pair_.run_until_completed(0, 1));
  pair_.run_for(Duration::from_ms(1));
  const auto marked = [&] {
    std::array<FlowSignal, 4> signals;
    const size_t count = pair_.nic(0).poll_signals(signals);
    Bytes bytes = 0;
    for (size_t i = 0; i < count; ++i) bytes += signals[i].marked;
    return bytes;
  };
  EXPECT_EQ(marked(), 0U) << "nothing was sent since the notification";
  pair_.lose = [](size_t, Datagram&) { return false; };
  pair_.post(0, ends_[0], StandardPair::write(from_, to_, kLong, 2));
  ASSERT_TRUE(pair_.run_until_completed(0, 2));
  EXPECT_EQ(marked(), kLong);
}

TEST_F(SoftNicUnreliable, IsPaced) {
  pair_.limit(0, 0, {.rate = Rate::from_bps(100'000'000), .window = Bytes{1} << 40});
  constexpr size_t kMessages = 20;
  for (size_t i = 0; i < kMessages; ++i) {
    pair_.post(0, ends_[0], StandardPair::write(from_, to_, kLong, i));
  }
  const Instant begin = pair_.now;
  ASSERT_TRUE(pair_.run_until_completed(0, kMessages));
  const double seconds = (pair_.now - begin).seconds();
  const double least = static_cast<double>((kMessages - 2) * kLong) * 8 / 100e6;
  EXPECT_GT(seconds, least);
}

}  // namespace
}  // namespace pacecar::unreliable_test
