// RcResponder: which packets the receiving half of standard RC takes, and the order of its answers
// (InfiniBand Architecture Specification vol. 1, 9.7.4, 9.7.5 and 9.9).
#include "transport/softnic/rc/rc_responder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/rc_halves.h"

namespace pacecar::rc_responder_test {
namespace {

using test::kHalfMtu;
using test::ResponderHalf;
using enum roce::Opcode;
using Outcome = RcResponder::Outcome;

// The answer is one, with this syndrome, to the packet at `place`.
void expect_answer(ResponderHalf& half, uint8_t syndrome, uint32_t place) {
  const auto answers = half.answers();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].opcode, kAck);
  EXPECT_EQ(answers[0].syndrome, syndrome);
  EXPECT_EQ(ResponderHalf::place(answers[0]), place);
  EXPECT_EQ(answers[0].destination_qp, 0x42U);
}

// --- acknowledgements ---

TEST(RcResponder, AcknowledgesTheNewestPacketAndCountsMessages) {
  ResponderHalf half;
  EXPECT_FALSE(half.responder.answer_due());
  EXPECT_EQ(half.take(half.at(kWriteFirst, 0, 2 * kHalfMtu), kHalfMtu), Outcome::kPlaced);
  EXPECT_TRUE(half.responder.answer_due());
  auto answers = half.answers();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].msn, 0U) << "it is not whole";
  EXPECT_FALSE(half.responder.answer_due());
  EXPECT_EQ(half.take(half.packet(kWriteLast, 1), kHalfMtu), Outcome::kPlaced);
  EXPECT_EQ(half.write(2), Outcome::kPlaced);
  answers = half.answers();
  ASSERT_EQ(answers.size(), 1U) << "one for both";
  EXPECT_EQ(ResponderHalf::place(answers[0]), 2U);
  EXPECT_EQ(answers[0].syndrome, roce::kAckUnlimited);
  EXPECT_EQ(answers[0].msn, 2U);
}

TEST(RcResponder, ADuplicateIsAcknowledgedAgainAndNotPlaced) {
  ResponderHalf half;
  half.write(0);
  half.write(1);
  half.answers();
  half.bytes[0] = 99;
  EXPECT_EQ(half.write(0), Outcome::kDuplicate);
  EXPECT_EQ(half.bytes[0], 99);
  expect_answer(half, roce::kAckUnlimited, 1);
}

// --- gaps ---

TEST(RcResponder, AGapIsToldOnceAndTheNextOneAgain) {
  ResponderHalf half;
  const auto gap = [&](uint32_t place) {
    EXPECT_EQ(half.write(place + 1), Outcome::kOutOfOrder);
    expect_answer(half, roce::kNakSequence, place);
    EXPECT_EQ(half.write(place + 2), Outcome::kOutOfOrder);
    EXPECT_TRUE(half.answers().empty());
  };
  gap(0);
  EXPECT_EQ(half.write(0), Outcome::kPlaced);
  gap(1);
  EXPECT_EQ(half.read(1, 1), Outcome::kRead);
  half.answers();
  gap(2);
  EXPECT_EQ(half.take(half.at(kFetchAdd, 2, 0)), Outcome::kRead);
  half.answers();
  gap(3);
}

// The NAK of a gap that has closed meanwhile would make the sender repeat everything.
TEST(RcResponder, AGapThatClosesInTimeIsNotTold) {
  for (const auto opcode : {kWriteOnly, kReadRequest, kFetchAdd}) {
    ResponderHalf half;
    half.write(1);
    half.take(half.at(opcode, 0, 8), opcode == kWriteOnly ? 8 : 0);
    for (const roce::Packet& answer : half.answers()) {
      EXPECT_EQ(answer.syndrome, roce::kAckUnlimited);
    }
  }
}

// --- rights and limits ---

TEST(RcResponder, WithoutTheRightEachOperationIsRefused) {
  for (const auto opcode : {kWriteOnly, kReadRequest, kFetchAdd}) {
    RcResponder::Config config = ResponderHalf::usual();
    config.rights.access = opcode == kWriteOnly     ? Access::kRemoteRead | Access::kRemoteAtomic
                           : opcode == kReadRequest ? Access::kRemoteWrite | Access::kRemoteAtomic
                                                    : Access::kRemoteAll;
    ResponderHalf half(config);
    EXPECT_EQ(half.take(half.at(opcode, 0, 8), opcode == kWriteOnly ? 8 : 0), Outcome::kRefused);
    EXPECT_TRUE(half.responder.refused());
    expect_answer(half, roce::kNakInvalidRequest, 0);
  }
}

TEST(RcResponder, AKeyOfAnotherDomainOpensNothing) {
  for (const auto opcode : {kWriteOnly, kReadRequest, kFetchAdd}) {
    RcResponder::Config config = ResponderHalf::usual();
    config.domain = 2;
    ResponderHalf half(config);
    const auto foreign = half.memory.table()
                             .add_as(half.bytes.data(), half.bytes.size(),
                                     Access::kRemoteAll | Access::kRemoteAtomic, 0x4000, 3)
                             .value();
    roce::Packet request = half.at(opcode, 0, 8);
    request.address = foreign.remote_address;
    request.key = foreign.key;
    EXPECT_EQ(half.take(request, opcode == kWriteOnly ? 8 : 0), Outcome::kRefused);
    expect_answer(half, roce::kNakRemoteAccess, 0);
  }
}

TEST(RcResponder, AnUnknownKeyOpensNotAByte) {
  for (const auto opcode : {kWriteOnly, kReadRequest}) {
    ResponderHalf half;
    roce::Packet request = half.at(opcode, 0, 1);
    request.key += 1;
    EXPECT_EQ(half.take(request, opcode == kWriteOnly ? 1 : 0), Outcome::kRefused);
    expect_answer(half, roce::kNakRemoteAccess, 0);
  }
}

TEST(RcResponder, WhatMovesNothingNeedsNoMemory) {
  ResponderHalf half;
  roce::Packet write = half.packet(kWriteOnly, 0);
  write.key = 12345;
  EXPECT_EQ(half.take(write), Outcome::kPlaced);
  roce::Packet read = half.packet(kReadRequest, 1);
  read.key = 12345;
  EXPECT_EQ(half.take(read), Outcome::kRead);
  const auto answers = half.answers();
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].opcode, kReadOnly);
  EXPECT_TRUE(answers[0].payload.empty());
}

TEST(RcResponder, NoMessageIsLongerThanTheSpecificationAllows) {
  ResponderHalf half;
  EXPECT_EQ(half.take(half.at(kReadRequest, 0, (1U << 31) + 1)), Outcome::kRefused);
  expect_answer(half, roce::kNakInvalidRequest, 0);
  ResponderHalf other;
  EXPECT_EQ(other.take(other.at(kReadRequest, 0, 1U << 31)), Outcome::kRefused);
  expect_answer(other, roce::kNakRemoteAccess, 0);  // its length is allowed
  ResponderHalf third;
  EXPECT_EQ(third.take(third.at(kWriteFirst, 0, (1U << 31) + 1), kHalfMtu), Outcome::kRefused);
  expect_answer(third, roce::kNakInvalidRequest, 0);
  ResponderHalf fourth;
  EXPECT_EQ(fourth.take(fourth.at(kWriteFirst, 0, 1U << 31), kHalfMtu), Outcome::kRefused);
  expect_answer(fourth, roce::kNakRemoteAccess, 0);
}

TEST(RcResponder, ARefusalIsRepeatedAndNothingMoreIsTaken) {
  ResponderHalf half;
  roce::Packet wrong = half.at(kWriteOnly, 0, 8);
  wrong.key += 1;
  EXPECT_EQ(half.take(wrong, 8), Outcome::kRefused);
  half.answers();
  EXPECT_EQ(half.write(0), Outcome::kRefused);
  expect_answer(half, roce::kNakRemoteAccess, 0);
  EXPECT_EQ(half.write(5), Outcome::kRefused);
  expect_answer(half, roce::kNakRemoteAccess, 0);
  EXPECT_EQ(half.bytes[0], 1);
  EXPECT_EQ(half.responder.cause(), CompletionStatus::kLocalError);
}

TEST(RcResponder, AWriteWhoseMemoryGoesStopsWhereItIs) {
  ResponderHalf half;
  half.take(half.at(kWriteFirst, 0, 2 * kHalfMtu), kHalfMtu);
  half.memory.table().remove(half.region.key);
  EXPECT_EQ(half.take(half.packet(kWriteLast, 1), kHalfMtu), Outcome::kRefused);
  expect_answer(half, roce::kNakRemoteAccess, 1);
  EXPECT_EQ(half.bytes[kHalfMtu], 1);
}

// --- sends ---

TEST(RcResponder, ASendTakesTheOldestRequestAndFillsIt) {
  ResponderHalf half;
  half.post_receive(11);
  half.post_receive(12);
  EXPECT_EQ(half.send(0, kHalfMtu, kSendFirst), Outcome::kPlaced);
  EXPECT_EQ(half.receives.size(), 1U) << "taken when it begins";
  roce::Packet last = half.packet(kSendLastImm, 1);
  last.immediate = 0xABC;
  last.solicited = true;
  EXPECT_EQ(half.take(last, 100), Outcome::kCompleted);
  const Completion& done = half.responder.completion();
  EXPECT_EQ(done.work_request, 11U);
  EXPECT_EQ(done.bytes, kHalfMtu + 100);
  EXPECT_EQ(done.kind, CompletionKind::kReceivedSend);
  EXPECT_EQ(done.immediate, 0xABCU);
  EXPECT_TRUE(done.has_immediate);
  EXPECT_TRUE(done.solicited);
  EXPECT_FALSE(done.invalidated);
  EXPECT_EQ(half.responder.writes_received(), 0U) << "it is no write";
  EXPECT_EQ(half.bytes[kHalfMtu + 99], 0x77);
  EXPECT_EQ(half.bytes[kHalfMtu + 100], 1);
}

TEST(RcResponder, WithoutRequestsASendIsPutOffAndLaterTaken) {
  ResponderHalf half;
  EXPECT_EQ(half.send(0, 10), Outcome::kNotReady);
  expect_answer(half, roce::receiver_not_ready(roce::kUsualRnrDelay), 0);
  EXPECT_EQ(half.send(1, 10), Outcome::kOutOfOrder);
  EXPECT_TRUE(half.answers().empty()) << "it comes again with the first";
  half.post_receive(11);
  EXPECT_EQ(half.send(0, 10), Outcome::kCompleted);
  expect_answer(half, roce::kAckUnlimited, 0);
  EXPECT_EQ(half.write(2), Outcome::kOutOfOrder);
  expect_answer(half, roce::kNakSequence, 1);
}

TEST(RcResponder, TheDelayIsTheConfiguredOne) {
  RcResponder::Config config = ResponderHalf::usual();
  config.rights.rnr_delay = 3;
  ResponderHalf half(config);
  half.send(0, 10);
  expect_answer(half, roce::receiver_not_ready(3), 0);
}

TEST(RcResponder, AWriteThatTellsNeedsARequestOnlyAtItsEnd) {
  ResponderHalf half;
  EXPECT_EQ(half.take(half.at(kWriteFirst, 0, kHalfMtu + 8), kHalfMtu), Outcome::kPlaced);
  EXPECT_EQ(half.take(half.packet(kWriteLastImm, 1), 8), Outcome::kNotReady);
  half.answers();
  half.post_receive(11);
  roce::Packet last = half.packet(kWriteLastImm, 1);
  last.immediate = 5;
  EXPECT_EQ(half.take(last, 8), Outcome::kCompleted) << "the rest of it is still known";
  const Completion& done = half.responder.completion();
  EXPECT_EQ(done.work_request, 11U);
  EXPECT_EQ(done.bytes, kHalfMtu + 8);
  EXPECT_EQ(done.kind, CompletionKind::kReceived);
  EXPECT_EQ(half.responder.writes_received(), 1U);
  EXPECT_TRUE(half.receives.empty());
}

TEST(RcResponder, WhereThereAreNoRequestsWritesNeedNoneAndSendsAreRefused) {
  ResponderHalf half(ResponderHalf::usual(), 0);
  EXPECT_EQ(half.take(half.at(kWriteOnlyImm, 0, 8), 8), Outcome::kCompleted);
  EXPECT_EQ(half.responder.completion().work_request, 0U);
  half.answers();
  EXPECT_EQ(half.send(1, 8), Outcome::kRefused);
  expect_answer(half, roce::kNakInvalidRequest, 1);
}

TEST(RcResponder, ASendThatDoesNotFitNamesItsRequest) {
  ResponderHalf half;
  half.post_receive(11, kHalfMtu + 5);
  EXPECT_EQ(half.send(0, kHalfMtu, kSendFirst), Outcome::kPlaced);
  EXPECT_EQ(half.send(1, 6, kSendLast), Outcome::kRefused);
  const auto taken = half.responder.take_back_receive();
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->id, 11U);
  EXPECT_FALSE(half.responder.take_back_receive()) << "only once";
  EXPECT_EQ(half.responder.cause(), CompletionStatus::kReceiveTooShort);
  ResponderHalf exact;
  exact.post_receive(12, kHalfMtu + 5);
  exact.send(0, kHalfMtu, kSendFirst);
  EXPECT_EQ(exact.send(1, 5, kSendLast), Outcome::kCompleted);
}

TEST(RcResponder, OnlyAWindowOfThisQueuePairIsInvalidated) {
  ResponderHalf half;
  const MemoryWindow window{.address = half.bytes.data(),
                            .length = 64,
                            .remote_address = 0x5000,
                            .key = 0x99,
                            .access = Access::kRemoteWrite,
                            .queue_pair = 5};
  ASSERT_TRUE(half.memory.table().bind(window));
  half.post_receive(1);
  half.post_receive(2);
  roce::Packet send = half.packet(kSendOnlyInvalidate, 0);
  send.invalidated_key = 0x99;
  EXPECT_EQ(half.take(send, 8), Outcome::kCompleted);
  EXPECT_TRUE(half.responder.completion().invalidated);
  EXPECT_EQ(half.responder.completion().immediate, 0x99U);
  send.psn = test::RequesterHalf::psn(1);
  send.invalidated_key = half.region.key;
  EXPECT_EQ(half.take(send, 8), Outcome::kRefused) << "a region is none";
}

TEST(RcResponder, RightsAreWithdrawnFromMessagesThatHaveBegun) {
  ResponderHalf half;
  EXPECT_EQ(half.take(half.at(kWriteFirst, 0, kHalfMtu + 8), kHalfMtu), Outcome::kPlaced);
  half.responder.set_rights({.access = Access::kRemoteRead});
  EXPECT_EQ(half.take(half.packet(kWriteLast, 1), 8), Outcome::kRefused);
  half.answers();

  ResponderHalf reads;
  EXPECT_EQ(reads.read(0, 2 * kHalfMtu), Outcome::kRead);
  roce::Packet answer;
  ASSERT_TRUE(reads.responder.next_answer(reads.memory.table(), &answer));
  reads.responder.set_rights({.access = Access::kRemoteWrite, .rnr_delay = 3});
  EXPECT_TRUE(reads.responder.next_answer(reads.memory.table(), &answer));
  EXPECT_EQ(answer.syndrome, roce::kNakRemoteAccess);
}

TEST(RcResponder, TheRequestOfAnUnfinishedSendIsGivenBack) {
  for (const bool reliable : {true, false}) {
    RcResponder::Config config = ResponderHalf::usual();
    config.reliable = reliable;
    ResponderHalf half(config);
    half.post_receive(11);
    EXPECT_FALSE(half.responder.take_back_receive()) << "no message has it";
    EXPECT_EQ(half.send(0, kHalfMtu, kSendFirst), Outcome::kPlaced);
    if (!reliable) half.send(5, 8, kSendLast);  // the message is dropped
    const auto taken = half.responder.take_back_receive();
    ASSERT_TRUE(taken);
    EXPECT_EQ(taken->id, 11U);
  }
}

// --- UC ---

TEST(RcResponder, OfUcEachLossHasItsName) {
  RcResponder::Config config = ResponderHalf::usual();
  config.reliable = false;
  ResponderHalf half(config);
  EXPECT_EQ(half.take(half.packet(kWriteLast, 1), 8), Outcome::kOutOfOrder) << "its first is lost";
  EXPECT_EQ(half.send(2, 8), Outcome::kNotReady);
  roce::Packet wrong = half.at(kWriteOnly, 3, 8);
  wrong.key += 1;
  EXPECT_EQ(half.take(wrong, 8), Outcome::kDropped);
  EXPECT_EQ(half.write(4), Outcome::kPlaced);
  EXPECT_FALSE(half.responder.refused());
  EXPECT_TRUE(half.answers().empty());
}

// --- another connection ---

TEST(RcResponder, AnotherConnectionBeginsWithNothing) {
  ResponderHalf half;
  half.post_receive(1, 4);
  half.take(half.at(kWriteOnlyImm, 0, 8), 8);
  half.read(1, kHalfMtu);
  half.take(half.at(kFetchAdd, 2, 0));
  half.take(half.at(kWriteFirst, 3, 2 * kHalfMtu), kHalfMtu);
  half.write(9);
  half.responder.restart(0x43, test::kFirstOfHalf + 100);
  EXPECT_FALSE(half.responder.answer_due());
  EXPECT_TRUE(half.answers().empty());
  EXPECT_EQ(half.responder.writes_received(), 0U);
  EXPECT_EQ(half.take(half.at(kFetchAdd, 2, 0)), Outcome::kDuplicate);
  EXPECT_TRUE(half.answers().empty()) << "the atomic was of the last connection";
  EXPECT_EQ(half.write(101), Outcome::kOutOfOrder);
  const auto naks = half.answers();
  ASSERT_EQ(naks.size(), 1U) << "the first gap of this connection";
  EXPECT_EQ(naks[0].destination_qp, 0x43U);
  EXPECT_EQ(half.write(100), Outcome::kPlaced) << "no message is in the middle";
  const auto answers = half.answers();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].msn, 1U);
}

TEST(RcResponder, AnotherConnectionDoesNotKnowOfTheRefusal) {
  ResponderHalf half;
  half.post_receive(1, 4);
  half.send(0, 5);
  ASSERT_TRUE(half.responder.refused());
  half.responder.restart(0x43, test::kFirstOfHalf);
  EXPECT_FALSE(half.responder.refused());
  EXPECT_EQ(half.responder.cause(), CompletionStatus::kLocalError);
  EXPECT_EQ(half.write(0), Outcome::kPlaced);
}

}  // namespace
}  // namespace pacecar::rc_responder_test
