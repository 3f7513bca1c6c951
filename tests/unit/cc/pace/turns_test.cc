// The receiver's half of `pace`: messages of a few round trips take turns.
#include <gtest/gtest.h>

#include "tests/support/pace_receiver.h"

namespace pacecar::turns_test {
namespace {

using namespace test;

class CcPaceTurns : public PaceReceiverTest {
 protected:
  // All flows have a message of a few round trips; the turn number of one is older.
  void run_with_one_late(uint32_t flows, uint32_t late) {
    add(flows);
    for (uint32_t flow = 0; flow < flows; ++flow) {
      post(flow, 1'000'000);
      demand(flow, kLine, 1'000'000, flow == late ? 5 : 6);
    }
    run(kRoundTrip * 2);
  }
};

TEST_F(CcPaceTurns, LateFlowIsServedFirst) {
  run_with_one_late(3, 1);
  EXPECT_GT(rates_[1], 0.9 * kLine);
  EXPECT_LT(rates_[0], 0.05 * kLine);
  EXPECT_LT(rates_[2], 0.05 * kLine);
  EXPECT_GT(rates_[0], 0) << "waiting flows keep a small rate";
  receiver_.on_arrival(now_, 1, 1'000'000, {1000, 4096});
  run(kRoundTrip);
  expect_rate(0, kShared / 2);
  expect_rate(2, kShared / 2);
}

// The rest of the waiting message is short, but would take long at the rate of waiting flows.
TEST_F(CcPaceTurns, EndOfAWaitingMessageIsServedAtOnce) {
  add(2);
  post(0);
  post(1);
  demand(0, kLine, 1'000'000, 1);
  demand(1, kLine, 10'000, 3);
  run(kRoundTrip);
  expect_rate(1, kLine / 256);  // flow 1 waits for its turn
  receiver_.on_arrival(now_, 1, 1'000, {1000, 4096});
  receiver_.on_arrival(now_, 0, 1'000'000, {1000, 4096});
  run(kRoundTrip);
  EXPECT_GT(rates_[1], 0.9 * kLine);
}

// The grants of the next flows take a round trip, in which the link would be idle.
TEST_F(CcPaceTurns, TurnsServedTogetherFillTheLinkForARoundTrip) {
  constexpr Bytes kQuarter = 100'000;  // of a round trip's worth
  add(8);
  for (uint32_t flow = 0; flow < 8; ++flow) {
    post(flow, kQuarter);
    demand(flow, kLine, kQuarter, static_cast<uint8_t>(10 + flow));
  }
  run(kRoundTrip * 2);
  for (uint32_t flow = 0; flow < 4; ++flow) EXPECT_GT(rates_[flow], 0.2 * kLine) << flow;
  for (uint32_t flow = 4; flow < 8; ++flow) EXPECT_LT(rates_[flow], 0.05 * kLine) << flow;
}

// The effect of a grant arrives a round trip later. Until then the flow keeps its turn.
TEST_F(CcPaceTurns, RaisedFlowKeepsItsTurnForARoundTrip) {
  add(3);
  for (uint32_t flow = 0; flow < 3; ++flow) post(flow, 1'000'000);
  demand(0, kLine, 1'000'000, 1);
  demand(1, kLine, 382'000, 3);  // all but a little of a round trip's worth
  demand(2, kLine, 382'000, 5);
  run(kRoundTrip * 2);
  receiver_.on_arrival(now_, 0, 1'000'000, {1000, 4096});
  run(kRoundTrip / 4);
  ASSERT_GT(rates_[1], 0.9 * kLine);
  receiver_.on_arrival(now_, 1, 1'000, {1000, 4096});
  run(kRoundTrip / 4);
  EXPECT_LT(rates_[2], 0.05 * kLine);
  now_ = now_ + kRoundTrip;
  receiver_.on_arrival(now_, 1, 1'000, {1000, 4096});
  run(kRoundTrip / 4);
  EXPECT_GT(rates_[2], 0.9 * kLine);
}

TEST_F(CcPaceTurns, LongMessagesTakeNoTurns) {
  add(2);
  for (uint32_t flow = 0; flow < 2; ++flow) {
    post(flow);
    demand(flow, kLine, kEndless, static_cast<uint8_t>(5 + flow));
  }
  run(kRoundTrip * 2);
  expect_rate(0, kShared / 2);
  expect_rate(1, kShared / 2);
}

// The rates of all waiting flows together count as a part of the link.
TEST_F(CcPaceTurns, ManyWaitingFlowsLeaveTheLinkToTheLateOne) {
  run_with_one_late(128, 0);
  EXPECT_LE(sum(), kLine * (1 + kTolerance));
}

}  // namespace
}  // namespace pacecar::turns_test
