// Connections of standard RC that end and come back: how the software NIC recovers, which packets
// of its peer it rejects, and when it gives up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/rc_pair.h"
#include "tests/support/wire_reencode.h"

namespace pacecar::lanes_test {
namespace {

using test::Datagram;
using test::forge;
using test::parse;
using test::rc_config;
using test::SoftNicPair;
using test::TestMemory;
using testing::HasSubstr;

constexpr Bytes kMtu = 1024;

PeerEndpoint endpoint(SoftNicPair& pair, size_t side, QueuePairId id) {
  return decode_endpoint(pair.nic(side).queue_pair_address(id).view()).value();
}

TEST(SoftNicStandby, IsAnnouncedWithStandardRcButNotWithReceiveRequests) {
  const auto announced = [](WireMode mode, const QueuePairConfig& config) {
    SoftNicPair pair(rc_config(mode));
    return endpoint(pair, 0, pair.nic(0).create_queue_pair(config).value());
  };
  EXPECT_TRUE(announced(WireMode::kRoce, {}).standby);
  EXPECT_FALSE(announced(WireMode::kRoce, {.receives = 1}).standby);
  EXPECT_FALSE(announced(WireMode::kExtended, {}).standby);
  const PeerEndpoint both = announced(WireMode::kAuto, {});
  EXPECT_TRUE(both.standby);
  EXPECT_TRUE(both.extended);
}

class SoftNicLanes : public testing::Test {
 protected:
  WorkRequest refused(uint64_t id) {
    WorkRequest request = SoftNicPair::write(from_, to_, kSize, id, 99);
    request.remote_key ^= 1;
    return request;
  }
  WorkRequest good(uint64_t id) {
    return SoftNicPair::write(from_, to_, kSize, id, static_cast<uint32_t>(id));
  }
  // What side 0 would send on its standby lane first.
  void say(std::span<const uint8_t> bytes) {
    roce::Packet packet{.opcode = roce::Opcode::kSendOnly,
                        .destination_qp = standby_[1].queue_pair,
                        .psn = standby_[0].first_psn};
    packet.payload = bytes;
    pair_.deliver(1, forge(0, packet));
  }
  void expect_broken(size_t side, CompletionStatus status, const char* fault) {
    pair_.collect();
    ASSERT_FALSE(pair_.completions[side].empty());
    EXPECT_EQ(pair_.completions[side].back().kind, CompletionKind::kBroken);
    EXPECT_EQ(pair_.completions[side].back().status, status);
    EXPECT_THAT(pair_.nic(side).fault(ends_[side]), HasSubstr(fault));
  }
  void expect_received(const std::vector<uint32_t>& immediates) {
    std::vector<uint32_t> received;
    for (const Completion& each : pair_.completions[1]) received.push_back(each.immediate);
    EXPECT_EQ(received, immediates);
  }

  static constexpr Bytes kSize = 3 * kMtu;
  SoftNicPair pair_{rc_config()};
  SoftNicPair::Ends ends_ = pair_.connect();
  std::array<RcLane, 2> standby_{*endpoint(pair_, 0, ends_[0]).standby,
                                 *endpoint(pair_, 1, ends_[1]).standby};
  const TestMemory& from_ = pair_.memory(0, kSize, Access::kLocalRead, 3);
  const TestMemory& to_ = pair_.memory(1, kSize);
};

// Each refusal ends the connection before the other is heard, over every new connection alike.
TEST_F(SoftNicLanes, EndsThatRefuseEachOtherAtTheSameTimeGiveUp) {
  const TestMemory& back = pair_.memory(0, kSize);
  WorkRequest other =
      SoftNicPair::write(pair_.memory(1, kSize, Access::kLocalRead), back, kSize, 1);
  other.remote_key ^= 1;
  pair_.post(0, ends_[0], refused(1));
  pair_.post(1, ends_[1], other);
  EXPECT_TRUE(
      pair_.run([this] { return !pair_.completions[0].empty() && !pair_.completions[1].empty(); },
                Duration::from_ms(100)));
  for (size_t side : {0, 1}) {
    expect_broken(side, CompletionStatus::kLocalError, "refuse each other");
  }
}

TEST_F(SoftNicLanes, ARefusalWhoseWordIsLostIsRepeated) {
  int lost = 0;
  pair_.lose = [&](size_t from, Datagram& datagram) {
    const roce::Packet packet = parse(datagram);
    const bool refusal =
        packet.opcode == roce::Opcode::kAck && packet.syndrome == roce::kNakRemoteAccess;
    return from == 1 && refusal && lost++ < 3;
  };
  pair_.post(0, ends_[0], good(1));
  pair_.post(0, ends_[0], refused(2));
  pair_.post(0, ends_[0], good(3));
  ASSERT_TRUE(pair_.run_until_completed(0, 3));
  EXPECT_EQ(lost, 4);
  EXPECT_EQ(pair_.completions[0][0].status, CompletionStatus::kOk);
  EXPECT_EQ(pair_.completions[0][1].status, CompletionStatus::kRemoteAccessError);
  EXPECT_EQ(pair_.completions[0][2].status, CompletionStatus::kOk);
  expect_received({1, 3});
}

TEST_F(SoftNicLanes, WhatHasArrivedIsNotToldTwice) {
  pair_.lose = [&](size_t from, Datagram& datagram) {  // acknowledgements of the data
    return from == 1 && parse(datagram).destination_qp == ends_[0];
  };
  for (uint64_t id = 1; id <= 3; ++id) pair_.post(0, ends_[0], good(id));
  ASSERT_TRUE(pair_.run_until_completed(1, 3));
  const uint64_t sent = pair_.nic(0).counters().data_bytes_sent;
  pair_.nic(1).fail_rc_connections(pair_.now);
  ASSERT_TRUE(pair_.run_until_completed(0, 3));
  for (const Completion& each : pair_.completions[0]) EXPECT_EQ(each.status, CompletionStatus::kOk);
  expect_received({1, 2, 3});
  EXPECT_LT(pair_.nic(0).counters().data_bytes_sent, sent + kSize) << "they went again";
  FlowSignal signal;
  ASSERT_EQ(pair_.nic(0).poll_signals({&signal, 1}), 1U);
  EXPECT_EQ(signal.acked, 3 * kSize) << "by the peer's count";
}

TEST_F(SoftNicLanes, WhatIsLateComesToNobody) {
  auto& old = pair_.memory(1, kSize);
  pair_.post(0, ends_[0], SoftNicPair::write(from_, old, kSize, 1));
  const auto late = pair_.transmit(0);
  pair_.nic(1).fail_rc_connections(pair_.now);
  ASSERT_TRUE(pair_.run_until_completed(0, 1));
  EXPECT_EQ(old.bytes, from_.bytes);
  std::ranges::fill(old.bytes, uint8_t{0xEE});
  for (const Datagram& each : late) pair_.deliver(1, each);
  EXPECT_EQ(old.bytes, std::vector<uint8_t>(kSize, 0xEE));
  EXPECT_EQ(pair_.nic(1).counters().unknown_queue_pair, late.size());
}

TEST_F(SoftNicLanes, APeerThatIsNotBackInTimeIsGivenUp) {
  pair_.post(0, ends_[0], good(1));
  pair_.nic(0).fail_rc_connections(pair_.now);
  pair_.lose = [](size_t from, Datagram&) { return from == 1; };
  ASSERT_TRUE(pair_.run_until_completed(0, 1, rc_config().silence_limit * 2));
  expect_broken(0, CompletionStatus::kLocalError, "");
  EXPECT_EQ(pair_.post(0, ends_[0], good(2)), 0U);
}

TEST_F(SoftNicLanes, APeerWithoutAStandbyLaneIsLostWithItsConnection) {
  const QueuePairConfig config;
  SoftNicPair::Ends ends{};
  for (size_t side = 0; side < 2; ++side) {
    ends[side] = pair_.nic(side).create_queue_pair(config).value();
  }
  for (size_t side = 0; side < 2; ++side) {
    RcEndpoint bare = endpoint(pair_, 1 - side, ends[1 - side]).standard;
    bare.extension_bytes = 0;
    ASSERT_TRUE(pair_.nic(side).connect_queue_pair(ends[side], encode(bare).view()));
  }
  pair_.post(0, ends[0], refused(1));
  ASSERT_TRUE(pair_.run_until_completed(0, 2, rc_config().silence_limit / 2)) << "at once";
  EXPECT_EQ(pair_.completions[0][0].status, CompletionStatus::kRemoteAccessError);
  EXPECT_EQ(pair_.completions[0][1].kind, CompletionKind::kBroken);
  EXPECT_EQ(pair_.completions[0][1].status, CompletionStatus::kRemoteAccessError);
}

TEST_F(SoftNicLanes, APeerIsAwaitedForTheSilenceLimit) {
  pair_.lose = [](size_t from, Datagram&) { return from == 1; };
  pair_.nic(0).fail_rc_connections(pair_.now);
  const Instant limit = pair_.now + rc_config().silence_limit;
  pair_.run_for(rc_config().silence_limit - Duration::from_us(1));
  EXPECT_TRUE(pair_.completions[0].empty());
  EXPECT_TRUE(pair_.run_until_completed(0, 1, Duration::from_us(1)));
  EXPECT_EQ(pair_.now, limit);
}

TEST_F(SoftNicLanes, TheApplicationGetsNoCompletionsOfAStandbyLane) {
  pair_.nic(0).fail_rc_connections(pair_.now);
  ASSERT_FALSE(pair_.transmit(0).empty()) << "a message of the standby lane";
  roce::Packet refusal{.opcode = roce::Opcode::kAck,
                       .destination_qp = standby_[0].queue_pair,
                       .psn = standby_[0].first_psn};
  refusal.syndrome = roce::kNakRemoteAccess;
  pair_.deliver(0, forge(1, refusal));
  pair_.collect();
  ASSERT_EQ(pair_.completions[0].size(), 1U);
  EXPECT_EQ(pair_.completions[0][0].queue_pair, ends_[0]);
  EXPECT_EQ(pair_.completions[0][0].kind, CompletionKind::kBroken);
}

// The connection keeps its number until the refusal has left.
TEST_F(SoftNicLanes, AConnectionThatHasRefusedAcceptsNothingMore) {
  pair_.post(0, ends_[0], refused(1));
  pair_.post(0, ends_[0], good(2));
  const auto packets = pair_.transmit_for(0, Duration::from_us(1));
  ASSERT_EQ(packets.size(), 6U);
  for (const Datagram& each : packets) pair_.deliver(1, each);
  EXPECT_EQ(pair_.nic(1).counters().unknown_queue_pair, packets.size() - 1);
  ASSERT_TRUE(pair_.run_until_completed(0, 2));
  EXPECT_EQ(pair_.completions[0][1].status, CompletionStatus::kOk);
  expect_received({2});
}

// However many of its writes are refused: others arrive between them.
TEST_F(SoftNicLanes, APeerWhoseWritesArriveNowAndThenIsNotGivenUp) {
  for (uint64_t i = 0; i < 1100; ++i) {
    pair_.post(0, ends_[0], good(2 * i));
    pair_.post(0, ends_[0], refused(2 * i + 1));
    ASSERT_TRUE(pair_.run_until_completed(0, 2)) << i;
    ASSERT_EQ(pair_.completions[0][0].status, CompletionStatus::kOk) << i;
    ASSERT_EQ(pair_.completions[0][1].kind, CompletionKind::kSent) << i;
    pair_.completions[0].clear();
  }
}

TEST_F(SoftNicLanes, NotificationsGoToTheNewConnection) {
  pair_.nic(0).fail_rc_connections(pair_.now);
  pair_.post(0, ends_[0], good(1));
  ASSERT_TRUE(pair_.run_until_completed(0, 1));
  std::vector<roce::Packet> answers;
  pair_.lose = [&](size_t from, Datagram& datagram) {
    datagram.ecn = from == 0 ? Ecn::kCongestion : Ecn::kCapable0;
    if (from == 1) answers.push_back(parse(datagram));
    return false;
  };
  pair_.post(0, ends_[0], good(2));
  ASSERT_TRUE(pair_.run_until_completed(0, 2));
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].opcode, roce::Opcode::kCnp);
  EXPECT_EQ(answers[1].opcode, roce::Opcode::kAck);
  EXPECT_NE(answers[0].destination_qp, ends_[0]) << "the first connection's";
  EXPECT_EQ(answers[0].destination_qp, answers[1].destination_qp);
}

TEST_F(SoftNicLanes, WhatIsDueOnAConnectionEndsWithIt) {
  pair_.post(0, ends_[0], good(1));
  for (Datagram& packet : pair_.transmit(0)) {
    packet.ecn = Ecn::kCongestion;
    pair_.deliver(1, packet);
  }
  pair_.nic(1).fail_rc_connections(pair_.now);
  for (const Datagram& datagram : pair_.transmit(1)) {
    EXPECT_EQ(parse(datagram).opcode, roce::Opcode::kSendOnly) << "words of the standby lane";
  }
}

TEST_F(SoftNicLanes, WhatAConnectionHadInFlightIsNoLonger) {
  pair_.limit(0, 0, {.rate = Rate::from_gbps(1000), .window = 3 * kMtu});
  const auto other = pair_.connect();
  pair_.post(0, ends_[0], good(1));
  EXPECT_EQ(pair_.transmit(0).size(), 3U) << "and lost";
  pair_.limit(0, 0, {.rate = Rate::from_gbps(1000), .window = 3 * kMtu});
  pair_.post(0, other[0], good(2));
  EXPECT_TRUE(pair_.transmit(0).empty());
  pair_.nic(0).fail_rc_connections(pair_.now);
  size_t data = 0;
  for (const Datagram& datagram : pair_.transmit_for(0, Duration::from_us(1))) {
    data += roce::shape_of(parse(datagram).opcode).kind == roce::Kind::kWrite ? 1 : 0;
  }
  EXPECT_EQ(data, 0U) << "both connections have ended";
  FlowSignal signal;
  ASSERT_EQ(pair_.nic(0).poll_signals({&signal, 1}), 1U);
  EXPECT_EQ(signal.in_flight, 0U);
}

// --- what a peer may say on the standby lane ---

TEST_F(SoftNicLanes, NonsenseBreaksTheQueuePair) {
  say(std::vector<uint8_t>(RecoveryMessage::kBytes, 0xEE));
  expect_broken(1, CompletionStatus::kLocalError, "an impossible state");
}

TEST_F(SoftNicLanes, AWriteIsNonsenseThere) {
  roce::Packet packet{.opcode = roce::Opcode::kWriteOnlyImm,
                      .destination_qp = standby_[1].queue_pair,
                      .psn = standby_[0].first_psn};
  pair_.deliver(1, forge(0, packet));
  expect_broken(1, CompletionStatus::kLocalError, "an impossible state");
}

TEST_F(SoftNicLanes, WordsAtTheWrongTimeBreakTheQueuePair) {
  for (const RecoveryMessage& wrong : {RecoveryMessage{.kind = RecoveryMessage::Kind::kReady},
                                       RecoveryMessage{.generation = 1, .end = {.queue_pair = 17}},
                                       RecoveryMessage{.lane = 1, .end = {.queue_pair = 17}}}) {
    pair_.completions = {};
    ends_ = pair_.connect();
    for (size_t side = 0; side < 2; ++side) {
      standby_[side] = *endpoint(pair_, side, ends_[side]).standby;
    }
    say(encode(wrong));
    expect_broken(1, CompletionStatus::kLocalError, "an impossible state");
  }
}

TEST_F(SoftNicLanes, CountsThatCannotBeBreakTheQueuePair) {
  pair_.post(1, ends_[1], {.id = 1, .immediate = 5, .opcode = Opcode::kWriteWithImm});
  pair_.transmit(1);
  say(encode({.end = {.queue_pair = 17}, .received = 2}));
  expect_broken(1, CompletionStatus::kLocalError, "an impossible number of received writes");
}

TEST_F(SoftNicLanes, WhatIsTooLongIsRefusedAndTheQueuePairGoesOn) {
  say(std::vector<uint8_t>(64, 0xEE));
  pair_.post(0, ends_[0], good(1));
  ASSERT_TRUE(pair_.run_until_completed(0, 1));
  EXPECT_EQ(pair_.completions[0][0].status, CompletionStatus::kOk);
}

// --- packets of the other mode ---

TEST_F(SoftNicLanes, PacketsOfTheExtendedModeFindNoStandardQueuePair) {
  const std::vector<uint8_t> payload(64, 0x77);
  const wire::DataHeader header{
      .destination_qp = ends_[1], .address = to_.address(), .key = to_.region.key, .length = 64};
  pair_.deliver(1, {.bytes = wire::encode_data(header, payload, wire::Coverage::kFull)});
  EXPECT_EQ(pair_.nic(1).counters().unknown_queue_pair, 1U);
  EXPECT_NE(to_.bytes[0], 0x77);
}

}  // namespace
}  // namespace pacecar::lanes_test
