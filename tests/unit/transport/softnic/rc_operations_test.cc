// Standard RC in the software NIC: packets sent, answers, and packets from strangers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/rc_pair.h"

namespace pacecar::rc_operations_test {
namespace {

using test::Datagram;
using test::forge;
using test::parse;
using test::rc_config;
using test::SoftNicPair;
using test::TestMemory;
using testing::HasSubstr;

constexpr Bytes kMtu = 1024;

struct Rc {
  explicit Rc(const QueuePairConfig& queue_pair = {.paced = false, .receives = 4})
      : ends(pair.connect(queue_pair)) {}

  // A packet of side 0, `ahead` packets after the first one of its lane.
  roce::Packet packet(roce::Opcode opcode, uint32_t ahead = 0) {
    return {.opcode = opcode,
            .destination_qp = ends[1],
            .psn = (test::lane_of(pair, 0, ends[0]).first_psn + ahead) & 0xFFFFFF};
  }
  roce::Packet write(roce::Opcode opcode, const TestMemory& to, uint32_t length,
                     uint32_t ahead = 0) {
    roce::Packet write = packet(opcode, ahead);
    write.address = to.address();
    write.key = to.region.key;
    write.length = length;
    return write;
  }
  void deliver(const roce::Packet& packet) { pair.deliver(1, forge(0, packet)); }
  std::vector<roce::Packet> answers() {
    answers_ = pair.transmit_for(1, Duration::from_us(200));
    std::vector<roce::Packet> packets;
    for (const Datagram& datagram : answers_) packets.push_back(parse(datagram));
    return packets;
  }
  void expect_refusal(uint8_t syndrome) {
    const auto packets = answers();
    ASSERT_EQ(packets.size(), 1U);
    EXPECT_EQ(packets[0].opcode, roce::Opcode::kAck);
    EXPECT_EQ(packets[0].syndrome, syndrome);
    EXPECT_EQ(packets[0].destination_qp, ends[0]);
    pair.collect();
    ASSERT_FALSE(pair.completions[1].empty());
    EXPECT_EQ(pair.completions[1].back().kind, CompletionKind::kBroken);
    EXPECT_EQ(pair.completions[1].back().status, CompletionStatus::kLocalError);
    EXPECT_THAT(pair.nic(1).fault(ends[1]), HasSubstr("192.0.2.1"));
  }

  SoftNicPair pair{rc_config()};
  SoftNicPair::Ends ends;
  std::vector<uint8_t> payload = std::vector<uint8_t>(4096, 0x77);

 private:
  std::vector<Datagram> answers_;
};

std::span<const uint8_t> first(const Rc& rc, size_t size) {
  return std::span(rc.payload).first(size);
}

// --- sending ---

TEST(SoftNicRc, MessagesAreCutAsTheSpecificationSays) {
  Rc rc;
  auto& from = rc.pair.memory(0, 5000);
  auto& to = rc.pair.memory(1, 5000);
  rc.pair.post(0, rc.ends[0], SoftNicPair::write(from, to, 2 * kMtu + 1, 1, 0x1234));
  const auto sent = rc.pair.transmit(0);
  ASSERT_EQ(sent.size(), 3U);
  const uint32_t psn = test::lane_of(rc.pair, 0, rc.ends[0]).first_psn;
  const std::array opcodes = {roce::Opcode::kWriteFirst, roce::Opcode::kWriteMiddle,
                              roce::Opcode::kWriteLastImm};
  for (uint32_t i = 0; i < 3; ++i) {
    const roce::Packet packet = parse(sent[i]);
    EXPECT_EQ(packet.opcode, opcodes[i]);
    EXPECT_EQ(packet.psn, (psn + i) & 0xFFFFFF);
    EXPECT_EQ(packet.ack_request, i == 2);
    EXPECT_EQ(packet.payload.size(), i == 2 ? 1 : kMtu);
  }
  EXPECT_EQ(parse(sent[0]).length, 2 * kMtu + 1);
  EXPECT_EQ(parse(sent[2]).immediate, 0x1234U);
}

TEST(SoftNicRc, LossIsToldOnceAndRepairedFromThere) {
  Rc rc;
  auto& from = rc.pair.memory(0, 10 * kMtu, Access::kLocalRead, 3);
  auto& to = rc.pair.memory(1, 10 * kMtu);
  rc.pair.post(0, rc.ends[0], SoftNicPair::write(from, to, 10 * kMtu));
  const auto sent = rc.pair.transmit(0);
  for (const size_t i : {0, 1, 3, 4, 5, 6}) rc.pair.deliver(1, sent[i]);
  const auto naks = rc.pair.transmit(1);
  ASSERT_EQ(naks.size(), 1U);
  EXPECT_EQ(parse(naks[0]).syndrome, roce::kNakSequence);
  EXPECT_EQ(parse(naks[0]).psn, parse(sent[2]).psn);
  EXPECT_EQ(rc.pair.nic(1).counters().out_of_order, 4U);
  rc.pair.deliver(0, naks[0]);
  const auto again = rc.pair.transmit(0);
  ASSERT_EQ(again.size(), 8U);
  EXPECT_EQ(parse(again[0]).psn, parse(sent[2]).psn);
  for (const Datagram& packet : again) rc.pair.deliver(1, packet);
  EXPECT_TRUE(rc.pair.run_until_completed(0, 1));
  EXPECT_EQ(to.bytes, from.bytes);
  EXPECT_EQ(rc.pair.nic(0).counters().packets_retransmitted, 8U);
}

// The packets behind a gap have arrived, too, but the receiver does not take them.
TEST(SoftNicRc, OnlyTheFirstOfAGapIsKnownToBeLost) {
  Rc rc({.receives = 0});
  auto& from = rc.pair.memory(0, 10 * kMtu);
  auto& to = rc.pair.memory(1, 10 * kMtu);
  rc.pair.post(0, rc.ends[0], SoftNicPair::write(from, to, 10 * kMtu));
  const auto sent = rc.pair.transmit_for(0, Duration::from_us(10));
  ASSERT_EQ(sent.size(), 10U);
  for (const size_t i : {0, 1, 3, 4, 5, 6, 7, 8, 9}) rc.pair.deliver(1, sent[i]);
  for (const Datagram& answer : rc.pair.transmit(1)) rc.pair.deliver(0, answer);
  FlowSignal signal;
  ASSERT_EQ(rc.pair.nic(0).poll_signals({&signal, 1}), 1U);
  EXPECT_EQ(signal.acked, 2 * kMtu);
  EXPECT_EQ(signal.lost, kMtu);
  EXPECT_EQ(signal.in_flight, 0U);
}

TEST(SoftNicRc, LostAcknowledgementCostsOnePacket) {
  Rc rc;
  auto& from = rc.pair.memory(0, 10 * kMtu);
  auto& to = rc.pair.memory(1, 10 * kMtu);
  bool lost = false;
  rc.pair.lose = [&](size_t side, Datagram&) { return side == 1 && !std::exchange(lost, true); };
  rc.pair.post(0, rc.ends[0], SoftNicPair::write(from, to, 10 * kMtu));
  ASSERT_TRUE(rc.pair.run_until_completed(0, 1));
  EXPECT_EQ(rc.pair.nic(0).counters().packets_retransmitted, 1U);
  EXPECT_EQ(rc.pair.nic(1).counters().duplicates, 1U);
}

TEST(SoftNicRc, DuplicatesAreAcknowledgedAndNotWrittenAgain) {
  Rc rc;
  auto& from = rc.pair.memory(0, 100, Access::kLocalRead, 1);
  auto& to = rc.pair.memory(1, 100);
  rc.pair.post(0, rc.ends[0], SoftNicPair::write(from, to, 100));
  const auto sent = rc.pair.transmit(0);
  rc.pair.deliver(1, sent[0]);
  EXPECT_EQ(rc.answers().size(), 1U);
  std::ranges::fill(to.bytes, 0xEE);
  rc.pair.deliver(1, sent[0]);
  EXPECT_EQ(rc.answers().size(), 1U);
  EXPECT_EQ(to.bytes, std::vector<uint8_t>(100, 0xEE));
}

TEST(SoftNicRc, AcknowledgementsAreGatheredUnlessAskedFor) {
  Rc rc;
  auto& to = rc.pair.memory(1, 4 * kMtu);
  auto head = rc.write(roce::Opcode::kWriteFirst, to, 4 * kMtu);
  head.payload = first(rc, kMtu);
  rc.deliver(head);
  EXPECT_TRUE(rc.pair.transmit(1).empty());
  auto middle = rc.packet(roce::Opcode::kWriteMiddle, 1);
  middle.payload = first(rc, kMtu);
  middle.ack_request = true;
  rc.deliver(middle);
  const auto acks = rc.pair.transmit(1);
  ASSERT_EQ(acks.size(), 1U);
  EXPECT_EQ(parse(acks[0]).psn, middle.psn);
  EXPECT_EQ(parse(acks[0]).syndrome, roce::kAckUnlimited);
}

TEST(SoftNicRc, NoAcknowledgementOvertakesTheResponseToARead) {
  Rc rc;
  auto& from = rc.pair.memory(1, 40 * kMtu, Access::kRemoteRead);
  auto& to = rc.pair.memory(1, 100);
  auto read = rc.packet(roce::Opcode::kReadRequest);
  read.address = from.address();
  read.key = from.region.key;
  read.length = 40 * kMtu;
  rc.deliver(read);
  auto write = rc.write(roce::Opcode::kWriteOnly, to, 100, 40);
  write.payload = first(rc, 100);
  write.ack_request = true;
  rc.deliver(write);
  const auto answers = rc.answers();
  ASSERT_EQ(answers.size(), 41U);
  for (size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(roce::shape_of(answers[i].opcode).kind, roce::Kind::kReadResponse);
    EXPECT_EQ(answers[i].psn, (read.psn + i) & 0xFFFFFF);
  }
  EXPECT_EQ(answers[0].opcode, roce::Opcode::kReadFirst);
  EXPECT_EQ(answers[39].opcode, roce::Opcode::kReadLast);
  EXPECT_EQ(answers[40].opcode, roce::Opcode::kAck);
}

// --- congestion ---

TEST(SoftNicRc, MarkedPacketsAreNotifiedAtMostOnceInFiftyMicroseconds) {
  Rc rc({.receives = 0});
  auto& from = rc.pair.memory(0, 20 * kMtu);
  auto& to = rc.pair.memory(1, 20 * kMtu);
  rc.pair.post(0, rc.ends[0], SoftNicPair::write(from, to, 20 * kMtu));
  auto sent = rc.pair.transmit_for(0, Duration::from_us(1));
  ASSERT_EQ(sent.size(), 20U);
  const auto notifications = [&] {
    size_t count = 0;
    for (const Datagram& datagram : rc.pair.transmit(1)) {
      const bool notification = parse(datagram).opcode == roce::Opcode::kCnp;
      count += notification ? 1 : 0;
      rc.pair.deliver(0, datagram);
    }
    return count;
  };
  for (size_t i = 0; i < 10; ++i) {
    sent[i].ecn = Ecn::kCongestion;
    rc.pair.deliver(1, sent[i]);
  }
  EXPECT_EQ(notifications(), 1U);
  EXPECT_EQ(rc.pair.nic(1).counters().marked_packets, 10U);
  rc.pair.now = rc.pair.now + Duration::from_us(51);
  sent[10].ecn = Ecn::kCongestion;
  for (size_t i = 10; i < 20; ++i) rc.pair.deliver(1, sent[i]);
  EXPECT_EQ(notifications(), 1U);
  FlowSignal signal;
  ASSERT_EQ(rc.pair.nic(0).poll_signals({&signal, 1}), 1U);
  EXPECT_TRUE(signal.echo_marked);
  EXPECT_GT(signal.marked, 0U);
  EXPECT_LE(signal.marked, signal.acked);
}

TEST(SoftNicRc, AfterANotificationTheNextIsFiftyMicrosecondsLater) {
  Rc rc({.receives = 0});
  auto& from = rc.pair.memory(0, 20 * kMtu);
  auto& to = rc.pair.memory(1, 20 * kMtu);
  rc.pair.post(0, rc.ends[0], SoftNicPair::write(from, to, 20 * kMtu));
  auto sent = rc.pair.transmit_for(0, Duration::from_us(1));
  size_t next = 0;
  const auto notified = [&] {
    sent[next].ecn = Ecn::kCongestion;
    rc.pair.deliver(1, sent[next++]);
    for (const Datagram& datagram : rc.pair.transmit(1)) {
      if (parse(datagram).opcode == roce::Opcode::kCnp) return true;
    }
    return false;
  };
  EXPECT_TRUE(notified());
  rc.pair.now = rc.pair.now + Duration::from_us(50) - Duration::from_ns(1);
  EXPECT_FALSE(notified());
  rc.pair.now = rc.pair.now + Duration::from_ns(1);
  EXPECT_TRUE(notified());
}

// --- what strangers send ---

TEST(SoftNicRcHostile, IsCountedAndChangesNothing) {
  Rc rc;
  auto& to = rc.pair.memory(1, 100);
  const auto before = to.bytes;
  auto write = rc.write(roce::Opcode::kWriteOnly, to, 100);
  write.payload = first(rc, 100);
  const Datagram good = forge(0, write);
  rc.pair.deliver(1, good, test::test_address(9));
  EXPECT_EQ(rc.pair.nic(1).counters().wrong_source, 1U);
  Datagram bad = good;
  bad.bytes[50] ^= 1;
  rc.pair.deliver(1, bad);
  EXPECT_EQ(rc.pair.nic(1).counters().bad_checksum, 1U);
  auto lost = write;
  lost.destination_qp ^= 0x10000;
  rc.deliver(lost);
  EXPECT_EQ(rc.pair.nic(1).counters().unknown_queue_pair, 1U);
  for (size_t size = 0; size < good.bytes.size(); size += 3) {
    rc.pair.deliver(1,
                    {.bytes = {good.bytes.begin(), good.bytes.begin() + static_cast<long>(size)}});
  }
  EXPECT_GT(rc.pair.nic(1).counters().malformed, 10U);
  EXPECT_LT(rc.pair.nic(1).counters().malformed, good.bytes.size());
  EXPECT_EQ(to.bytes, before);
  EXPECT_TRUE(rc.answers().empty());
  rc.deliver(write);
  EXPECT_EQ(to.bytes, rc.payload.size() > 100 ? std::vector<uint8_t>(100, 0x77) : before);
}

TEST(SoftNicRcHostile, AnswersToNothingChangeNothing) {
  Rc rc;
  auto& from = rc.pair.memory(0, 3000);
  auto& to = rc.pair.memory(1, 3000);
  rc.pair.post(0, rc.ends[0], SoftNicPair::write(from, to, 3000, 5));
  const auto sent = rc.pair.transmit(0);
  roce::Packet answer{.destination_qp = rc.ends[0]};
  const uint32_t psn = parse(sent[0]).psn;
  for (const uint8_t syndrome : {roce::kAckUnlimited, roce::kNakSequence, roce::kNakInvalidRequest,
                                 roce::receiver_not_ready(roce::kUsualRnrDelay)}) {
    for (const uint32_t ahead : {3U, 4U, 1000U, 0x7FFFFFU, 0x800000U, 0xFFFF00U}) {
      answer.opcode = roce::Opcode::kAck;
      answer.syndrome = syndrome;
      answer.psn = (psn + ahead) & 0xFFFFFF;
      rc.pair.deliver(0, forge(1, answer));
      answer.opcode = roce::Opcode::kReadMiddle;
      answer.syndrome = 0;
      answer.payload = first(rc, kMtu);
      rc.pair.deliver(0, forge(1, answer));
      answer.payload = {};
    }
  }
  rc.pair.collect();
  EXPECT_TRUE(rc.pair.completions[0].empty());
  for (const Datagram& packet : sent) rc.pair.deliver(1, packet);
  EXPECT_TRUE(rc.pair.run_until_completed(0, 1));
  EXPECT_EQ(rc.pair.completions[0][0].status, CompletionStatus::kOk);
}

TEST(SoftNicRcHostile, MessagesThatBreakTheRulesAreRefused) {
  struct Step {
    roce::Opcode opcode;
    uint32_t length;
    size_t payload;
  };
  using enum roce::Opcode;
  const std::vector<std::vector<Step>> attacks = {
      {{kWriteMiddle, 0, kMtu}},                             // without a first
      {{kWriteLast, 0, 10}},                                 //
      {{kSendLast, 0, 10}},                                  //
      {{kWriteFirst, 3000, kMtu}, {kWriteOnly, 10, 10}},     // another message inside
      {{kWriteFirst, 3000, kMtu}, {kSendMiddle, 0, kMtu}},   //
      {{kWriteFirst, 3000, kMtu}, {kReadRequest, 10, 0}},    //
      {{kWriteFirst, 3000, 100}},                            // not a full packet
      {{kWriteFirst, kMtu, kMtu}},                           // is the last already
      {{kWriteFirst, 3000, kMtu}, {kWriteLast, 0, 10}},      // ends too early
      {{kWriteFirst, 1100, kMtu}, {kWriteLast, 0, 77}},      // too late
      {{kWriteFirst, 1100, kMtu}, {kWriteMiddle, 0, kMtu}},  //
      {{kWriteOnly, 10, 11}},                                //
      {{kWriteOnly, 11, 10}},                                //
      {{kWriteFirst, 0xFFFFFFFF, kMtu}},                     // longer than any message
      {{kReadRequest, 0xFFFFFFFF, 0}},                       //
      {{kSendOnly, 0, kMtu + 4}},                            // longer than the MTU
  };
  for (size_t i = 0; i < attacks.size(); ++i) {
    SCOPED_TRACE(i);
    Rc rc;
    auto& to = rc.pair.memory(1, 4096, Access::kRemoteAll);
    const ReceiveRequest receive{
        .local = to.bytes.data(), .length = 4096, .local_key = to.region.key};
    ASSERT_EQ(rc.pair.nic(1).post_receives(rc.ends[1], {&receive, 1}), 1U);
    uint32_t ahead = 0;
    for (const Step& step : attacks[i]) {
      const roce::Shape shape = roce::shape_of(step.opcode);
      const bool addressed = shape.kind == roce::Kind::kReadRequest ||
                             (shape.kind == roce::Kind::kWrite && shape.first);
      roce::Packet packet =
          addressed ? rc.write(step.opcode, to, step.length, ahead) : rc.packet(step.opcode, ahead);
      packet.payload = first(rc, step.payload);
      rc.deliver(packet);
      ++ahead;
    }
    rc.expect_refusal(roce::kNakInvalidRequest);
  }
}

TEST(SoftNicRcHostile, RefusalIsRepeatedToWhoeverAsksAgain) {
  Rc rc;
  auto& to = rc.pair.memory(1, 100, Access::kLocalRead);
  auto write = rc.write(roce::Opcode::kWriteOnly, to, 100);
  write.payload = first(rc, 100);
  rc.deliver(write);
  rc.expect_refusal(roce::kNakRemoteAccess);
  rc.deliver(write);
  const auto again = rc.answers();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].syndrome, roce::kNakRemoteAccess);
  EXPECT_EQ(to.bytes[5], 5);
}

TEST(SoftNicRcHostile, TheOwnersAddressReachesNothing) {
  for (const auto opcode : {roce::Opcode::kWriteOnly, roce::Opcode::kReadRequest}) {
    Rc rc;
    auto& memory = rc.pair.memory(1, 100, Access::kRemoteAll);
    auto request = rc.write(opcode, memory, 100);
    request.address = reinterpret_cast<uint64_t>(memory.bytes.data());
    if (opcode == roce::Opcode::kWriteOnly) request.payload = first(rc, 100);
    rc.deliver(request);
    rc.expect_refusal(roce::kNakRemoteAccess);
    EXPECT_EQ(memory.bytes[5], 5);
  }
}

TEST(SoftNicRcHostile, MemoryThatGoesWhileItIsReadOrWrittenIsNotTouched) {
  Rc rc;
  auto& to = rc.pair.memory(1, 3 * kMtu);
  auto head = rc.write(roce::Opcode::kWriteFirst, to, 3 * kMtu);
  head.payload = first(rc, kMtu);
  rc.deliver(head);
  rc.pair.nic(1).deregister_memory(to.region);
  auto middle = rc.packet(roce::Opcode::kWriteMiddle, 1);
  middle.payload = first(rc, kMtu);
  rc.deliver(middle);
  rc.expect_refusal(roce::kNakRemoteAccess);
  EXPECT_EQ(to.bytes[kMtu], static_cast<uint8_t>(kMtu));

  Rc other;
  auto& from = other.pair.memory(1, 100 * kMtu, Access::kRemoteRead);
  auto read = other.packet(roce::Opcode::kReadRequest);
  read.address = from.address();
  read.key = from.region.key;
  read.length = 100 * kMtu;
  other.deliver(read);
  std::array<TxPacket, 8> some;
  ASSERT_GT(other.pair.nic(1).poll_transmit(other.pair.now, some), 0U);
  other.pair.nic(1).deregister_memory(from.region);
  const auto answers = other.answers();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].syndrome, roce::kNakRemoteAccess);
}

// A network may deliver a request twice, the second time when its reader has everything and the
// memory is gone.
TEST(SoftNicRc, ARepeatedReadOfMemoryThatIsGoneBreaksNothing) {
  for (const size_t answered : {size_t{0}, size_t{8}}) {
    Rc rc;
    auto& from = rc.pair.memory(1, 100 * kMtu, Access::kRemoteRead);
    auto& other = rc.pair.memory(1, 100, Access::kRemoteRead);
    auto read = rc.packet(roce::Opcode::kReadRequest);
    read.address = from.address();
    read.key = from.region.key;
    read.length = 100 * kMtu;
    rc.deliver(read);
    ASSERT_EQ(rc.answers().size(), 100U);
    if (answered > 0) {
      std::array<TxPacket, 8> some;
      rc.deliver(read);
      ASSERT_GT(rc.pair.nic(1).poll_transmit(rc.pair.now, some), 0U);
    }
    rc.pair.nic(1).deregister_memory(from.region);
    if (answered == 0) rc.deliver(read);
    for (const roce::Packet& answer : rc.answers()) EXPECT_EQ(answer.syndrome, roce::kAckUnlimited);
    auto next = rc.packet(roce::Opcode::kReadRequest, 100);
    next.address = other.address();
    next.key = other.region.key;
    next.length = 100;
    rc.deliver(next);
    const auto answers = rc.answers();
    ASSERT_EQ(answers.size(), 1U);
    EXPECT_EQ(answers[0].payload.size(), 100U);
    rc.pair.collect();
    EXPECT_TRUE(rc.pair.completions[1].empty());
  }
}

TEST(SoftNicRcHostile, TooManyReadsAreLostAndNotRemembered) {
  Rc rc;
  auto& from = rc.pair.memory(1, kMtu, Access::kRemoteRead);
  for (uint32_t i = 0; i < 1000; ++i) {
    auto read = rc.packet(roce::Opcode::kReadRequest, i);
    read.address = from.address();
    read.key = from.region.key;
    read.length = 1;
    rc.deliver(read);
  }
  EXPECT_LE(rc.answers().size(), 33U) << "32 responses and the refusal of what came after";
}

// A host that was stopped for long asks its peer, in either mode, before it takes it for dead.
TEST(SoftNicRc, SilenceIsWhatIsAskedInVain) {
  for (const SoftNicConfig& config : {SoftNicPair::default_config(), rc_config()}) {
    SoftNicPair pair(config);
    const auto ends = pair.connect();
    pair.post(0, ends[0], SoftNicPair::write(pair.memory(0, 64), pair.memory(1, 64), 64));
    ASSERT_FALSE(pair.transmit(0).empty()) << "and lost";
    pair.now = pair.now + config.silence_limit * 2;
    ASSERT_TRUE(pair.run_until_completed(0, 1));
    EXPECT_EQ(pair.completions[0][0].kind, CompletionKind::kSent);
  }
}

// --- silence ---

// The host stops when a peer has been silent for a while already; the peer answers as soon as both
// are back.
TEST(SoftNicRc, OurOwnStopIsNotThePeersSilence) {
  for (const SoftNicConfig& config : {SoftNicPair::default_config(), rc_config()}) {
    SoftNicPair pair(config);
    const auto ends = pair.connect();
    pair.post(0, ends[0], SoftNicPair::write(pair.memory(0, 64), pair.memory(1, 64), 64));
    ASSERT_FALSE(pair.transmit_for(0, config.silence_limit / 2).empty()) << "and all lost";
    pair.now = pair.now + config.silence_limit * 2;
    ASSERT_TRUE(pair.run_until_completed(0, 1));
    EXPECT_EQ(pair.completions[0][0].status, CompletionStatus::kOk);
  }
}

}  // namespace
}  // namespace pacecar::rc_operations_test
