// Requests in flight on a lane, the choice of the next lane, work request identifiers.
#include "transport/verbs/lane.h"

#include <gtest/gtest.h>

#include <array>

#include "transport/verbs/lane_ledger.h"
#include "transport/verbs/queue_pair.h"

namespace pacecar::lane_test {
namespace {

TEST(LaneLedger, CompletionCoversAllEarlierRequests) {
  LaneLedger ledger(8);
  const uint32_t first = ledger.next_sequence();
  for (uint64_t i = 0; i < 5; ++i) ledger.add({.number = i, .bytes = 10});
  EXPECT_EQ(ledger.in_flight(), 50U);
  EXPECT_EQ(ledger.up_to(first), 1U);
  EXPECT_EQ(ledger.up_to(first + 2), 3U);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(ledger.take().number, i);
  EXPECT_EQ(ledger.in_flight(), 20U);
  EXPECT_EQ(ledger.up_to(first + 2), 0U) << "already complete";
  EXPECT_EQ(ledger.up_to(first + 4), 2U);
  EXPECT_EQ(ledger.up_to(first + 5), 0U) << "never sent";
}

TEST(LaneLedger, SequenceNumbersWrap) {
  LaneLedger ledger(4);
  for (uint32_t i = 0; i < LaneLedger::kSequenceMask; ++i) {
    ledger.add({.bytes = 1});
    ledger.take();
  }
  EXPECT_EQ(ledger.next_sequence(), LaneLedger::kSequenceMask);
  ledger.add({.number = 1, .bytes = 1});
  EXPECT_EQ(ledger.next_sequence(), 0U);
  ledger.add({.number = 2, .bytes = 1});
  EXPECT_EQ(ledger.up_to(0), 2U);
  EXPECT_EQ(ledger.up_to(LaneLedger::kSequenceMask), 1U);
}

TEST(LaneLedger, CompletionIsRequestedAtLeastEverySignalBytes) {
  LaneLedger ledger(8);
  EXPECT_TRUE(ledger.wants_signal(LaneLedger::kSignalBytes));
  EXPECT_FALSE(ledger.wants_signal(LaneLedger::kSignalBytes - 1));
  ledger.add({.bytes = LaneLedger::kSignalBytes - 1});
  EXPECT_TRUE(ledger.wants_signal(1));
  ledger.signal_last();
  EXPECT_FALSE(ledger.wants_signal(1));
  EXPECT_TRUE(ledger.take().signaled);
}

TEST(LaneLedger, StalledSinceTheOldestDepartureOrTheLastCompletion) {
  const auto at = [](int64_t ms) { return Instant() + Duration::from_ms(ms); };
  LaneLedger ledger(8);
  EXPECT_EQ(ledger.stalled_since(), Instant::never()) << "nothing is in flight";
  ledger.add({.departure = at(5)});
  ledger.add({.departure = at(6)});
  EXPECT_EQ(ledger.stalled_since(), at(5));
  ledger.take();
  ledger.on_completion(at(20));
  EXPECT_EQ(ledger.stalled_since(), at(20)) << "the next request waited behind the first";
  ledger.take();
  EXPECT_EQ(ledger.stalled_since(), Instant::never());
  ledger.add({.departure = at(90)});
  EXPECT_EQ(ledger.stalled_since(), at(90)) << "idle is not stalled";
}

TEST(NextLane, LaneWithFewestBytesIsNextAndTiesTakeTurns) {
  const auto next = [](std::initializer_list<Bytes> in_flight, size_t turn) {
    VerbsQueuePair qp(1, {});
    for (const Bytes bytes : in_flight) qp.lanes.emplace_back(1).ledger.add({.bytes = bytes});
    qp.lanes_used = qp.lanes.size();
    qp.turn = turn;
    return qp.next_lane();
  };
  EXPECT_EQ(next({5, 3, 3, 4}, 0), 1U);
  EXPECT_EQ(next({5, 3, 3, 4}, 2), 2U);
  EXPECT_EQ(next({5, 3, 3, 4}, 3), 1U);
  EXPECT_EQ(next({5, 3, 3, 4}, 4), 1U);
  EXPECT_EQ(next({9}, 3), 0U);
}

TEST(VerbsWorkId, UnpacksToThePackedFields) {
  for (const bool receive : {false, true}) {
    const VerbsWorkId id{.queue_pair = 0xFEDCBA98,
                         .lane = 127,
                         .receive = receive,
                         .sequence = LaneLedger::kSequenceMask};
    const VerbsWorkId back = VerbsWorkId::unpack(id.pack());
    EXPECT_EQ(back.queue_pair, id.queue_pair);
    EXPECT_EQ(back.lane, id.lane);
    EXPECT_EQ(back.receive, receive);
    EXPECT_EQ(back.sequence, id.sequence);
  }
}

// Seven tries of 4.096 us * 2^timeout.
TEST(AckTimeout, AllTriesEndBeforeTheSilenceLimit) {
  EXPECT_EQ(choose_ack_timeout(Duration::from_s(6)), 17);  // 3.8 s
  EXPECT_EQ(choose_ack_timeout(Duration::from_ms(300)), 13);
  EXPECT_EQ(choose_ack_timeout(Duration()), 1) << "0 would mean: wait for ever";
  EXPECT_EQ(choose_ack_timeout(Duration::from_s(1'000'000)), 31);
}

}  // namespace
}  // namespace pacecar::lane_test
