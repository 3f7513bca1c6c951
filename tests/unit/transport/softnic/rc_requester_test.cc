// RcRequester: how the sending half of standard RC cuts messages, asks for acknowledgements, goes
// back, and takes its peer for dead (InfiniBand Architecture Specification vol. 1, 9.7.3 to 9.7.5).
#include "transport/softnic/rc/rc_requester.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/rc_halves.h"

namespace pacecar::rc_requester_test {
namespace {

using test::kHalfMtu;
using test::RequesterHalf;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

constexpr uint8_t kNotReady = roce::receiver_not_ready(roce::kUsualRnrDelay);

std::vector<size_t> askers(const std::vector<RcRequester::Outgoing>& sent) {
  std::vector<size_t> which;
  for (size_t i = 0; i < sent.size(); ++i) {
    if (sent[i].packet.ack_request) which.push_back(i);
  }
  return which;
}

// --- sending ---

TEST(RcRequester, AMessageIsCutIntoFullPacketsAndARest) {
  for (const Bytes length : {Bytes{0}, Bytes{1}, kHalfMtu, kHalfMtu + 1, 3 * kHalfMtu}) {
    SCOPED_TRACE(length);
    RequesterHalf half;
    half.post(half.write(length));
    EXPECT_EQ(half.requester.next_bytes(), std::min(length, kHalfMtu)) << "told before";
    const auto sent = half.send();
    ASSERT_EQ(sent.size(), std::max<size_t>(1, (length + kHalfMtu - 1) / kHalfMtu));
    Bytes bytes = 0;
    for (const auto& each : sent) {
      EXPECT_EQ(each.packet.payload.data(), half.bytes.data() + bytes);
      EXPECT_EQ(each.packet.destination_qp, 0x42U);
      bytes += each.packet.payload.size();
    }
    EXPECT_EQ(bytes, length);
    EXPECT_EQ(half.requester.in_flight(), length);
    EXPECT_EQ(half.requester.next_bytes(), 0U) << "nothing is left";
  }
}

TEST(RcRequester, TheNextPayloadIsKnownInTheMiddleOfAMessage) {
  RequesterHalf half;
  half.post(half.write(2 * kHalfMtu + 10));
  half.post(half.read(kHalfMtu));
  RcRequester::Outgoing packet;
  for (const Bytes size : {kHalfMtu, kHalfMtu, Bytes{10}}) {
    EXPECT_EQ(half.requester.next_bytes(), size);
    EXPECT_FALSE(half.requester.next_reads());
    ASSERT_TRUE(half.requester.next_packet(half.now, false, &packet));
    EXPECT_EQ(packet.packet.payload.size(), size);
  }
  EXPECT_EQ(half.requester.next_bytes(), 0U) << "a request has none";
  EXPECT_TRUE(half.requester.next_reads());
  ASSERT_TRUE(half.requester.next_packet(half.now, false, &packet));
  EXPECT_FALSE(half.requester.next_reads()) << "that was all";
}

TEST(RcRequester, NoMoreIsInFlightThanTheWindowAllows) {
  RequesterHalf half;
  half.post(half.write(40 * kHalfMtu));
  const auto sent = half.send();
  ASSERT_EQ(sent.size(), RequesterHalf::usual().window_packets);
  EXPECT_TRUE(sent.back().packet.ack_request) << "no other may follow";
  EXPECT_TRUE(half.requester.full());
  EXPECT_FALSE(half.requester.has_work());
  half.answer(1);
  EXPECT_FALSE(half.requester.full());
  EXPECT_THAT(half.send_places(), ElementsAre(32, 33));
}

TEST(RcRequester, ALongMessageAsksAtLeastEverySixteenPackets) {
  RequesterHalf half;
  half.post(half.write(20 * kHalfMtu));
  half.post(half.write(30 * kHalfMtu));
  EXPECT_THAT(askers(half.send()), ElementsAre(15, 19, 31)) << "a message's end; the window's end";
  half.answer(31);
  EXPECT_THAT(askers(half.send()), ElementsAre(15, 17)) << "counted from the last that asked";
}

TEST(RcRequester, WhoeverIsToldToAskDoes) {
  RequesterHalf half;
  half.post(half.write(3 * kHalfMtu));
  EXPECT_THAT(askers(half.send(true)), ElementsAre(0, 1, 2));
}

TEST(RcRequester, TakesAsManyRequestsAsItHasRoomFor) {
  RequesterHalf half;
  const std::vector<WorkRequest> many(20, half.write(1));
  EXPECT_EQ(half.requester.post(many), RequesterHalf::usual().work_requests);
  half.send();
  half.answer(1);
  EXPECT_EQ(half.completed().size(), 2U);
  EXPECT_EQ(half.requester.done(), 2U);
  EXPECT_EQ(half.requester.post(many), 2U);
}

// --- acknowledgements ---

TEST(RcRequester, RequestsCompleteInOrderAndOnlyWhole) {
  RequesterHalf half;
  half.post(half.write(2 * kHalfMtu, 1));
  half.post(half.write(0, 2));
  half.post(half.write(kHalfMtu, 3));
  half.send();
  EXPECT_EQ(half.answer(0).acked, kHalfMtu);
  EXPECT_THAT(half.completed(), IsEmpty());
  EXPECT_EQ(half.answer(2).acked, kHalfMtu);
  EXPECT_THAT(half.completed(),
              ElementsAre(Pair(1, CompletionStatus::kOk), Pair(2, CompletionStatus::kOk)));
  EXPECT_FALSE(half.requester.idle());
  EXPECT_EQ(half.answer(3).acked, kHalfMtu);
  EXPECT_TRUE(half.requester.idle());
  EXPECT_FALSE(half.requester.has_completed() && half.completed().empty());
}

TEST(RcRequester, OldOrImpossibleAnswersChangeNothing) {
  RequesterHalf half;
  half.post(half.write(4 * kHalfMtu));
  half.send();
  half.answer(1);
  const Bytes in_flight = half.requester.in_flight();
  for (const uint8_t syndrome : {roce::kAckUnlimited, roce::kNakSequence, kNotReady}) {
    for (const uint32_t place : {4U, 5U, 0xFFFFF0U}) {
      const SendProgress progress = half.answer(place, syndrome);
      EXPECT_EQ(progress.acked + progress.lost, 0U) << place;
    }
  }
  EXPECT_EQ(half.answer(0, roce::kNakSequence).lost, 0U) << "it has arrived since";
  EXPECT_EQ(half.answer(1).acked, 0U) << "told again";
  EXPECT_EQ(half.requester.in_flight(), in_flight);
  EXPECT_FALSE(half.requester.has_work());
}

TEST(RcRequester, WhatIsAcknowledgedAfterANotificationCountsAsMarkedOnce) {
  RequesterHalf half;
  half.post(half.write(4 * kHalfMtu));
  half.send();
  EXPECT_EQ(half.answer(0).marked, 0U);
  half.requester.on_congestion();
  EXPECT_EQ(half.answer(0).marked, 0U) << "nothing new";
  EXPECT_EQ(half.answer(2).marked, 2 * kHalfMtu);
  EXPECT_EQ(half.answer(3).marked, 0U);
}

TEST(RcRequester, TheAnswerToWhoeverAskedTellsTheRoundTrip) {
  RequesterHalf half;
  half.post(half.write(2 * kHalfMtu));
  half.send();
  half.pass(Duration::from_us(10));
  half.post(half.write(2 * kHalfMtu));
  half.send();
  half.pass(Duration::from_us(50));
  EXPECT_EQ(half.answer(0).rtt, Duration()) << "it did not ask";
  const Instant arrival = half.now - Duration::from_us(15);  // it has waited in this host
  EXPECT_EQ(half.requester
                .on_ack({.syndrome = roce::kAckUnlimited, .psn = RequesterHalf::psn(1)}, arrival,
                        half.now)
                .rtt,
            Duration::from_us(45));
  EXPECT_EQ(half.answer(2).rtt, Duration());
  EXPECT_EQ(half.answer(3).rtt, Duration::from_us(50));
  EXPECT_EQ(half.answer(3).rtt, Duration()) << "told again";
}

TEST(RcRequester, TheAnswerToALaterPacketIsNoRoundTripOfAnEarlierOne) {
  RequesterHalf half;
  half.post(half.write(1));
  half.send();
  half.post(half.write(2 * kHalfMtu));
  half.send();
  half.pass(Duration::from_us(50));
  EXPECT_EQ(half.answer(1).rtt, Duration());
  half.pass(Duration::from_us(50));
  EXPECT_EQ(half.answer(2).rtt, Duration::from_us(100));
}

// --- going back ---

TEST(RcRequester, AGapIsRepeatedFromItsFirstPacketWhichAsks) {
  RequesterHalf half;
  half.post(half.write(6 * kHalfMtu));
  half.post(half.write(100));
  half.send();
  const SendProgress told = half.answer(2, roce::kNakSequence);
  EXPECT_EQ(told.acked, 2 * kHalfMtu);
  EXPECT_EQ(told.lost, kHalfMtu) << "the others were only not taken";
  EXPECT_EQ(half.requester.in_flight(), 0U);
  half.post(half.write(100));
  const auto again = half.send();
  ASSERT_EQ(again.size(), 6U);
  EXPECT_EQ(RequesterHalf::place(again[0]), 2U);
  EXPECT_THAT(askers(again), ElementsAre(0, 3, 4, 5)) << "the first, and each message's end";
  for (size_t i = 0; i < again.size(); ++i) EXPECT_EQ(again[i].retransmission, i < 5) << i;
  EXPECT_EQ(half.requester.in_flight(), 4 * kHalfMtu + 200);
}

TEST(RcRequester, NoMoreIsLostThanWasInFlight) {
  RequesterHalf half;
  half.post(half.write(100));
  half.send();
  EXPECT_EQ(half.answer(0, roce::kNakSequence).lost, 100U);
  EXPECT_EQ(half.answer(0, roce::kNakSequence).lost, 0U) << "it has not been sent again yet";
}

TEST(RcRequester, WhatArrivesAfterAllNeedNotBeRepeated) {
  RequesterHalf half;
  half.post(half.write(6 * kHalfMtu, 7));
  half.send();
  half.answer(1, roce::kNakSequence);
  RcRequester::Outgoing packet;
  ASSERT_TRUE(half.requester.next_packet(half.now, false, &packet));
  EXPECT_EQ(half.requester.in_flight(), kHalfMtu);
  EXPECT_EQ(half.answer(3).acked, 3 * kHalfMtu);
  EXPECT_EQ(half.requester.in_flight(), 0U);
  EXPECT_THAT(half.send_places(), ElementsAre(4, 5));
  EXPECT_EQ(half.answer(5).acked, 2 * kHalfMtu);
  EXPECT_EQ(half.requester.in_flight(), 0U);
  EXPECT_THAT(half.completed(), ElementsAre(Pair(7, CompletionStatus::kOk)));
}

// A NAK shows that the earlier sending did not arrive: the answer is to the later one.
TEST(RcRequester, ARepeatedPacketsRoundTripCountsFromItsRepetition) {
  RequesterHalf half;
  half.post(half.write(4 * kHalfMtu));
  half.send();
  half.pass(Duration::from_ms(1));
  half.answer(1, roce::kNakSequence);
  half.send();
  half.pass(Duration::from_us(100));
  EXPECT_EQ(half.answer(1).rtt, Duration::from_us(100));
  EXPECT_EQ(half.answer(3).rtt, Duration::from_us(100));
  half.post(half.write(1));
  half.send();
  EXPECT_EQ(half.requester.deadline() - half.now, Duration::from_us(250))
      << "of two equal round trips: twice one, or four times their variation more";
}

TEST(RcRequester, WhatWasAskedInSilenceTellsNoRoundTrip) {
  RequesterHalf half;
  half.post(half.write(1));
  half.send();
  half.time_out();
  half.send();
  EXPECT_EQ(half.answer(0).rtt, Duration()) << "to which of the two?";
}

// --- refusals ---

TEST(RcRequester, ARefusalEndsTheConnectionAndFailsItsRequestAlone) {
  const std::vector<std::pair<uint8_t, CompletionStatus>> refusals = {
      {roce::kNakInvalidRequest, CompletionStatus::kRemoteRefused},
      {roce::kNakRemoteAccess, CompletionStatus::kRemoteAccessError},
      {roce::kNakRemoteOperation, CompletionStatus::kRemoteFailed}};
  for (const auto& [syndrome, status] : refusals) {
    RequesterHalf half;
    for (const uint64_t id : {1, 2, 3}) half.post(half.write(2 * kHalfMtu, id));
    half.send();
    half.answer(3, syndrome);
    EXPECT_EQ(half.requester.failure(), status);
    EXPECT_FALSE(half.requester.has_work());
    EXPECT_EQ(half.time_out(), SendTimeout::kNotYet) << "it is over";
    EXPECT_THAT(half.completed(), ElementsAre(Pair(1, CompletionStatus::kOk), Pair(2, status)));
    EXPECT_TRUE(half.requester.has_requests());
  }
}

TEST(RcRequester, MemoryThatGoesFailsOnlyWhatWouldReadIt) {
  RequesterHalf half;
  WorkRequest other = half.write(kHalfMtu, 2);
  other.local_key += 1;
  WorkRequest empty = half.write(0, 4);
  half.post(half.write(2 * kHalfMtu, 1));
  half.post(other);
  half.send();
  half.post(half.write(kHalfMtu, 3));
  half.post(empty);
  half.requester.revoke({.key = half.region.key});
  EXPECT_EQ(half.requester.failure(), CompletionStatus::kOk) << "all of it has been sent";
  EXPECT_THAT(half.send_places(), ElementsAre(3)) << "the empty one reads nothing";
  half.answer(3);
  EXPECT_EQ(half.requester.done(), 2U) << "the third has failed";
  EXPECT_THAT(half.completed(),
              ElementsAre(Pair(1, CompletionStatus::kOk), Pair(2, CompletionStatus::kOk),
                          Pair(3, CompletionStatus::kMemoryGone), Pair(4, CompletionStatus::kOk)));
}

TEST(RcRequester, MemoryThatGoesInTheMiddleOfAMessageEndsTheConnection) {
  RequesterHalf half;
  half.post(half.write(40 * kHalfMtu, 1));
  half.send();
  half.requester.revoke({.key = half.region.key});
  half.answer(0);
  EXPECT_THAT(half.send_places(), IsEmpty());
  EXPECT_EQ(half.requester.failure(), CompletionStatus::kMemoryGone);
  half.requester.stop(CompletionStatus::kLocalError);
  EXPECT_EQ(half.requester.failure(), CompletionStatus::kMemoryGone) << "the first cause stays";
  EXPECT_EQ(half.requester.in_flight(), 0U);
  EXPECT_EQ(half.requester.abandon(), 39 * kHalfMtu) << "are not acknowledged";
  EXPECT_EQ(half.requester.abandon(), 0U) << "only once";
  EXPECT_EQ(half.requester.done(), 0U);
  EXPECT_THAT(half.completed(), ElementsAre(Pair(1, CompletionStatus::kMemoryGone)));
}

// --- another connection ---

TEST(RcRequester, AnotherConnectionContinuesWithWhatHasNotArrived) {
  RequesterHalf half;
  half.post(half.write(2 * kHalfMtu, 1, Opcode::kWriteWithImm));
  half.post(half.write(kHalfMtu, 2));
  half.post(half.write(kHalfMtu, 3, Opcode::kWriteWithImm));
  half.post(half.write(kHalfMtu, 4, Opcode::kWriteWithImm));
  half.send();
  half.answer(1);
  half.requester.stop(CompletionStatus::kLocalError);
  const uint64_t first = test::kFirstOfHalf + 1000;
  EXPECT_FALSE(half.requester.restart(0x43, first, 0)) << "one was acknowledged";
  EXPECT_FALSE(half.requester.restart(0x43, first, 4)) << "three were sent";
  EXPECT_EQ(half.requester.restart(0x43, first, 2), 2 * kHalfMtu) << "and all before the second";
  EXPECT_EQ(half.requester.failure(), CompletionStatus::kOk);
  EXPECT_EQ(half.completed().size(), 3U);
  const auto again = half.send();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(RequesterHalf::place(again[0]), 1000U);
  EXPECT_EQ(again[0].packet.destination_qp, 0x43U);
  EXPECT_FALSE(again[0].retransmission) << "it is new on this connection";
  half.answer(1000);
  EXPECT_THAT(half.completed(), ElementsAre(Pair(4, CompletionStatus::kOk)));
}

TEST(RcRequester, WhatWasNotSentWholeHasNotArrived) {
  RequesterHalf half;
  half.post(half.write(kHalfMtu, 1, Opcode::kWriteWithImm));
  half.post(half.write(40 * kHalfMtu, 2, Opcode::kWriteWithImm));
  half.send();
  half.requester.stop(CompletionStatus::kLocalError);
  EXPECT_FALSE(half.requester.restart(0x43, 0x2000000, 2));
  EXPECT_EQ(half.requester.restart(0x43, 0x2000000, 1), kHalfMtu);
}

TEST(RcRequester, AnotherConnectionKnowsNothingOfTheLastOnesTrouble) {
  RequesterHalf half;
  half.post(half.write(8 * kHalfMtu, 1));
  half.send();
  for (int i = 0; i < 3; ++i) {
    half.time_out();
    half.send();
  }
  half.requester.on_congestion();
  half.answer(0, kNotReady);
  half.requester.stop(CompletionStatus::kLocalError);
  ASSERT_TRUE(half.requester.restart(0x43, test::kFirstOfHalf, 0));
  EXPECT_FALSE(half.requester.probing());
  EXPECT_EQ(half.send().size(), 8U) << "the peer is asked nothing, and not waited for";
  SendProgress progress;
  half.time_out(&progress);
  EXPECT_FALSE(progress.timed_out) << "it is the first time";
  EXPECT_EQ(half.answer(7).marked, 0U);
}

TEST(RcRequester, AnAnswerOfAnotherConnectionTellsItsOwnRoundTrip) {
  RequesterHalf half;
  half.post(half.write(2 * kHalfMtu));
  half.send();
  half.pass(Duration::from_ms(5));
  half.time_out();
  half.send();
  half.requester.stop(CompletionStatus::kLocalError);
  ASSERT_TRUE(half.requester.restart(0x43, test::kFirstOfHalf, 0));
  half.send(true);
  half.pass(Duration::from_us(100));
  const SendProgress told = half.answer(0);
  EXPECT_EQ(told.rtt, Duration::from_us(100));
  EXPECT_EQ(told.lost, 0U) << "nothing was asked on this connection";
  half.answer(1);
  half.post(half.write(1));
  half.send();
  EXPECT_EQ(half.requester.deadline() - half.now, Duration::from_us(250)) << "of two of them";
}

TEST(RcRequester, MemoryThatIsGoneIsNotReadOnAnotherConnection) {
  RequesterHalf half;
  half.post(half.write(2 * kHalfMtu, 1));
  WorkRequest other = half.write(kHalfMtu, 2);
  other.local_key += 1;
  half.post(other);
  half.send();
  half.requester.revoke({.key = half.region.key});
  half.requester.stop(CompletionStatus::kMemoryGone);
  ASSERT_TRUE(half.requester.restart(0x43, test::kFirstOfHalf, 0));
  EXPECT_THAT(half.completed(), ElementsAre(Pair(1, CompletionStatus::kMemoryGone)));
  EXPECT_EQ(half.send().size(), 1U);
  half.answer(0);
  EXPECT_THAT(half.completed(), ElementsAre(Pair(2, CompletionStatus::kOk)));
  EXPECT_EQ(half.requester.abandon(), 0U) << "what was sent again has been acknowledged";
}

}  // namespace
}  // namespace pacecar::rc_requester_test
