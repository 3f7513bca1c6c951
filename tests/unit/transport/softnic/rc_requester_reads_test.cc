// RcRequester: reads and atomics, whose responses acknowledge them (InfiniBand Architecture
// Specification vol. 1, 9.7.5.1.2 and 9.7.5.1.3).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/rc_halves.h"

namespace pacecar::rc_requester_reads_test {
namespace {

using test::kHalfMtu;
using test::RequesterHalf;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

// A quarter of kBuffer may be read, in pieces of a quarter of that.
constexpr Bytes kBuffer = 64 * kHalfMtu;
constexpr uint32_t kPiece = 4;

TEST(RcRequesterReads, ALongReadIsRequestedInPieces) {
  RequesterHalf half(RequesterHalf::usual(), kBuffer);
  const WorkRequest read = half.read(9 * kHalfMtu + 100);
  half.post(read);
  const auto sent = half.send();
  ASSERT_EQ(sent.size(), 3U);
  for (uint32_t i = 0; i < 3; ++i) {
    const roce::Packet& request = sent[i].packet;
    EXPECT_EQ(request.opcode, roce::Opcode::kReadRequest);
    EXPECT_EQ(RequesterHalf::place(sent[i]), i * kPiece);
    EXPECT_EQ(request.address, read.remote + i * kPiece * kHalfMtu);
    EXPECT_EQ(request.key, read.remote_key);
    EXPECT_EQ(request.length, i < 2 ? kPiece * kHalfMtu : kHalfMtu + 100);
    EXPECT_FALSE(request.ack_request) << "the response acknowledges it";
  }
  EXPECT_EQ(half.reads.requested(), read.length);
  EXPECT_EQ(half.requester.in_flight(), 0U) << "nothing of ours";
}

TEST(RcRequesterReads, ResponsesFillTheMemoryAndGiveBackTheReadWindow) {
  RequesterHalf half(RequesterHalf::usual(), kBuffer);
  half.post(half.read(2 * kHalfMtu + 10, 3));
  half.send();
  for (const auto& [place, size] : {std::pair<uint32_t, Bytes>{0, kHalfMtu}, {1, kHalfMtu}}) {
    half.respond(place, size);
  }
  EXPECT_EQ(half.reads.requested(), 10U);
  EXPECT_THAT(half.completed(), IsEmpty());
  EXPECT_EQ(half.respond(2, 10).acked, 0U) << "of what we send";
  EXPECT_EQ(half.reads.requested(), 0U);
  EXPECT_THAT(half.completed(), ElementsAre(Pair(3, CompletionStatus::kOk)));
  EXPECT_EQ(half.bytes[2 * kHalfMtu + 9], 0x77);
  EXPECT_EQ(half.bytes[2 * kHalfMtu + 10], 1) << "beyond it";
  EXPECT_TRUE(half.requester.idle());
}

TEST(RcRequesterReads, NoMoreArePendingThanThePeerTakes) {
  RequesterHalf half(RequesterHalf::usual(), kBuffer);
  half.post(half.read(24 * kHalfMtu));
  EXPECT_THAT(half.send_places(), ElementsAre(0, 4, 8, 12));
  EXPECT_FALSE(half.requester.has_work());
  for (uint32_t place = 0; place < kPiece - 1; ++place) half.respond(place);
  EXPECT_THAT(half.send_places(), IsEmpty()) << "the first is not whole";
  half.respond(kPiece - 1);
  EXPECT_THAT(half.send_places(), ElementsAre(16));
}

TEST(RcRequesterReads, APeerThatTakesFewReadsIsAskedForMoreAtATime) {
  RcRequester::Config config = RequesterHalf::usual();
  config.window_packets = 1024;
  for (const uint8_t depth : {1, 4, 16, 64}) {
    config.sending.read_depth = depth;
    RequesterHalf half(config);
    WorkRequest read = half.read(2048 * kHalfMtu);  // that never arrives
    half.post(read);
    const auto sent = half.send();
    ASSERT_FALSE(sent.empty());
    EXPECT_EQ(sent[0].packet.length / kHalfMtu, depth == 1 ? 1024U : depth == 4 ? 256U : 64U);
    EXPECT_EQ(sent.size(), std::min<size_t>(depth, 16)) << "and no more than the window";
  }
}

TEST(RcRequesterReads, ASmallBufferStillTakesAPacketAtATime) {
  RequesterHalf half(RequesterHalf::usual(), 4 * kHalfMtu);
  half.post(half.read(3 * kHalfMtu));
  EXPECT_THAT(half.send_places(), ElementsAre(0, 1, 2));
}

TEST(RcRequesterReads, ADepthOfNoneCountsAsOne) {
  RequesterHalf half(RequesterHalf::usual(), kBuffer);
  half.requester.start({.read_depth = 0, .silence_limit = Duration::from_s(1)}, test::kFirstOfHalf);
  half.post(half.read(8 * kHalfMtu));
  EXPECT_THAT(half.send_places(), ElementsAre(0));
}

TEST(RcRequesterReads, WhatIsFencedWaitsForAllReadsBeforeIt) {
  RequesterHalf half(RequesterHalf::usual(), kBuffer);
  half.post(half.read(2 * kHalfMtu));
  WorkRequest write = half.write(2 * kHalfMtu);
  write.fenced = true;
  half.post(write);
  half.post(half.write(1));
  EXPECT_THAT(half.send_places(), ElementsAre(0));
  half.respond(0);
  EXPECT_THAT(half.send_places(), IsEmpty());
  half.respond(1);
  EXPECT_THAT(half.send_places(), ElementsAre(2, 3, 4));
}

TEST(RcRequesterReads, WhatIsNotFencedFollowsAtOnce) {
  RequesterHalf half(RequesterHalf::usual(), kBuffer);
  half.post(half.read(2 * kHalfMtu));
  half.post(half.write(1));
  EXPECT_THAT(half.send_places(), ElementsAre(0, 2));
}

// An acknowledgement of a later request shows that the response is lost.
TEST(RcRequesterReads, OnlyItsResponseAcknowledgesARead) {
  RequesterHalf half(RequesterHalf::usual(), kBuffer);
  half.post(half.write(kHalfMtu, 1));
  half.post(half.read(2 * kHalfMtu, 2));
  half.post(half.write(kHalfMtu, 3));
  half.send();
  EXPECT_EQ(half.answer(3).acked, kHalfMtu) << "of the first";
  EXPECT_THAT(half.completed(), ElementsAre(Pair(1, CompletionStatus::kOk)));
  EXPECT_EQ(half.reads.requested(), 0U);
  EXPECT_THAT(half.send_places(), ElementsAre(1, 3));
  EXPECT_EQ(half.reads.requested(), 2 * kHalfMtu) << "asked for again";
  half.answer(3);
  EXPECT_THAT(half.send_places(), IsEmpty()) << "but once";
  half.respond(1);
  EXPECT_EQ(half.answer(3).acked, 0U);
  EXPECT_THAT(half.send_places(), ElementsAre(2, 3)) << "only the rest of it";
  half.respond(2);
  EXPECT_EQ(half.answer(3).acked, kHalfMtu);
  EXPECT_TRUE(half.requester.idle());
}

TEST(RcRequesterReads, AResponseAcknowledgesWhatPrecedesIt) {
  RequesterHalf half(RequesterHalf::usual(), kBuffer);
  half.post(half.write(2 * kHalfMtu, 1));
  half.post(half.read(kHalfMtu, 2));
  half.send();
  EXPECT_EQ(half.respond(2).acked, 2 * kHalfMtu);
  EXPECT_EQ(half.completed().size(), 2U);
  EXPECT_EQ(half.requester.in_flight(), 0U);
}

TEST(RcRequesterReads, AResponseBehindAMissingOneIsRequestedAgainOnce) {
  RequesterHalf half(RequesterHalf::usual(), kBuffer);
  half.post(half.read(8 * kHalfMtu));
  half.send();
  half.respond(0);
  half.respond(2);
  half.respond(3);
  EXPECT_EQ(half.bytes[2 * kHalfMtu], 1) << "not taken";
  const auto again = half.send();
  ASSERT_EQ(again.size(), 2U);
  EXPECT_EQ(RequesterHalf::place(again[0]), 1U);
  EXPECT_EQ(again[0].packet.length, 3 * kHalfMtu) << "up to where the piece ended";
  EXPECT_EQ(RequesterHalf::place(again[1]), 4U);
  EXPECT_TRUE(again[0].retransmission);
  half.respond(4);
  EXPECT_THAT(half.send_places(), IsEmpty());
}

TEST(RcRequesterReads, ASilentPeerIsAskedForOnePacketAtATime) {
  RequesterHalf half(RequesterHalf::usual(), kBuffer);
  half.post(half.read(8 * kHalfMtu));
  half.send();
  EXPECT_EQ(half.time_out(), SendTimeout::kRepair);
  auto again = half.send();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].packet.length, kHalfMtu);
  EXPECT_EQ(half.reads.requested(), kHalfMtu);
  EXPECT_THAT(half.send_places(), IsEmpty());
  half.respond(0);
  again = half.send();
  ASSERT_EQ(again.size(), 2U) << "it lives";
  EXPECT_EQ(again[0].packet.length, 3 * kHalfMtu);
}

TEST(RcRequesterReads, WhatFitsNoReadIsNotTaken) {
  RequesterHalf half(RequesterHalf::usual(), kBuffer);
  half.post(half.write(kHalfMtu));
  half.post(half.read(kHalfMtu));
  half.send();
  EXPECT_EQ(half.respond(0).acked, 0U) << "that is a write";
  EXPECT_EQ(half.respond(2).acked, 0U) << "nothing was sent there";
  half.answer(0);
  EXPECT_EQ(half.respond(0).acked, 0U) << "it has been acknowledged";
  half.respond(1, 0, roce::Opcode::kAtomicAck);
  EXPECT_EQ(half.requester.failure(), CompletionStatus::kOk);
  EXPECT_FALSE(half.requester.idle());
  half.respond(1);
  EXPECT_TRUE(half.requester.idle());
}

TEST(RcRequesterReads, AResponseOfAnotherSizeEndsTheConnection) {
  for (const Bytes size : {Bytes{9}, Bytes{11}, Bytes{0}}) {
    RequesterHalf half(RequesterHalf::usual(), kBuffer);
    half.post(half.read(10, 4));
    half.send();
    half.respond(0, size);
    EXPECT_EQ(half.requester.failure(), CompletionStatus::kLocalError);
    EXPECT_THAT(half.completed(), ElementsAre(Pair(4, CompletionStatus::kLocalError)));
    EXPECT_EQ(half.bytes[0], 1);
  }
}

TEST(RcRequesterReads, MemoryThatIsGoneIsNotFilled) {
  RequesterHalf half(RequesterHalf::usual(), kBuffer);
  half.post(half.read(10, 4));
  half.send();
  half.memory.table().remove(half.region.key);
  half.respond(0, 10);
  EXPECT_EQ(half.requester.failure(), CompletionStatus::kMemoryGone);
  EXPECT_EQ(half.bytes[0], 1);
}

TEST(RcRequesterReads, AReadOfNothingNeedsNoMemory) {
  RequesterHalf half(RequesterHalf::usual(), kBuffer);
  WorkRequest read = half.read(0, 4);
  read.local = nullptr;
  read.local_key = 0;
  half.post(read);
  half.send();
  half.respond(0, 0);
  EXPECT_THAT(half.completed(), ElementsAre(Pair(4, CompletionStatus::kOk)));
}

TEST(RcRequesterReads, AnAtomicGoesOutWholeAndBringsBackTheWordBefore) {
  RequesterHalf half;
  for (const Opcode opcode : {Opcode::kCompareSwap, Opcode::kFetchAdd}) {
    WorkRequest atomic = half.write(8, 0, opcode);
    atomic.operand = 5;
    atomic.compare = 6;
    half.post(atomic);
  }
  EXPECT_FALSE(half.requester.next_reads()) << "its answer needs no room";
  const auto sent = half.send();
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0].packet.opcode, roce::Opcode::kCompareSwap);
  EXPECT_EQ(sent[1].packet.opcode, roce::Opcode::kFetchAdd);
  for (const auto& each : sent) {
    EXPECT_TRUE(each.packet.ack_request);
    EXPECT_EQ(each.packet.address, 0x10000U);
    EXPECT_EQ(each.packet.key, 77U);
    EXPECT_EQ(each.packet.operand, 5U);
    EXPECT_EQ(each.packet.compare, 6U);
  }
  const uint64_t original = 0x0123456789ABCDEF;
  half.requester.on_read_response(
      {.opcode = roce::Opcode::kAtomicAck, .psn = RequesterHalf::psn(0), .original = original},
      half.memory.table(), half.now);
  uint64_t word = 0;
  std::memcpy(&word, half.bytes.data(), sizeof word);
  EXPECT_EQ(word, original);
  half.respond(1, 8, roce::Opcode::kReadOnly);
  EXPECT_EQ(half.completed().size(), 1U) << "a read's response is none to an atomic";
}

TEST(RcRequesterReads, WhoeverStopsReadingLeavesTheWindowToOthers) {
  RequesterHalf half(RequesterHalf::usual(), kBuffer);
  half.post(half.read(8 * kHalfMtu));
  half.send();
  half.respond(0);
  half.requester.stop(CompletionStatus::kLocalError);
  EXPECT_EQ(half.reads.requested(), 0U);
  EXPECT_EQ(half.requester.failure(), CompletionStatus::kLocalError);
}

}  // namespace
}  // namespace pacecar::rc_requester_reads_test
