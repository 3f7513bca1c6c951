// The bytes of brief messages that have left, as their sender estimates them between signals: the
// next message in the NIC's queue begins when the one before has left.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "cc/pace/sender.h"

namespace pacecar::departure_test {
namespace {

constexpr Bytes kMtu = 4096;
constexpr Duration kRoundTrip = Duration::from_us(100);
constexpr FlowEnvironment kLongPath{.line_rate = Rate::from_gbps(400),
                                    .mtu = kMtu,
                                    .overhead = 64,
                                    .burst_bytes = kMtu,
                                    .base_rtt = kRoundTrip,
                                    .pause = Duration::from_ms(1)};  // housekeeping is as rare
constexpr Bytes kBrief = 1'000'000;  // leaves in a fifth of a round trip
// The estimate: as fast as by even division, a third of the rate in turn.
constexpr int64_t kSpeedUp = 3;
constexpr Duration kLeaves = Duration::from_us(20) * kSpeedUp;

class CcPaceDeparture : public ::testing::Test {
 protected:
  static constexpr uint32_t kFlows = 3;
  CcPaceDeparture() {
    PaceConstants constants;
    constants.core_start = 1;
    senders_.emplace(kLongPath, constants, kFlows);
    for (uint32_t flow = 0; flow < kFlows; ++flow) flows_[flow] = &senders_->add_flow(now_, flow);
  }
  void hold(uint32_t flow, uint64_t gbps, bool busy = false) {
    flows_[flow]->on_grant(now_, {.rate = Rate::from_gbps(gbps),
                                  .aligned = !busy,
                                  .busy = busy,
                                  .validity = Duration::from_s(1),
                                  .epoch = ++epoch_});
  }
  void want(uint32_t flow, Bytes bytes) {
    stats_[flow].backlog += bytes;
    look(flow);
    settle();
  }
  // A signal: `in_flight` bytes have left, and none is acknowledged.
  void signal(uint32_t flow, Bytes in_flight) {
    stats_[flow].in_flight = stats_[flow].sent = in_flight;
    look(flow);
    settle();
  }
  void look(uint32_t flow) {
    flows_[flow]->demand(now_, stats_[flow]);
    limits_[flow] = flows_[flow]->decide(now_);
  }
  // As the owner of a NIC: decides again for the changed flows.
  void settle() {
    std::array<uint32_t, kFlows> changed;
    for (int round = 0; round < 8; ++round) {
      const size_t count = senders_->poll_changed(now_, changed);
      for (const uint32_t flow : std::span(changed).first(count)) look(flow);
    }
  }
  void run(Duration span) {
    const Instant end = now_ + span;
    for (int turns = 0; senders_->next_deadline() <= end; ++turns) {
      ASSERT_LT(turns, 1000) << "always due";
      now_ = std::max(now_, senders_->next_deadline());
      settle();
    }
    now_ = end;
  }
  // The flow begins when the bytes before it have left by the estimate, `span` from now.
  void expect_begins_after(uint32_t flow, Duration span) {
    run(span - Duration::from_us(1));
    EXPECT_LT(gbps(flow), 5);
    run(Duration::from_us(2));
    EXPECT_EQ(gbps(flow), 400);
  }
  double gbps(uint32_t flow) const { return limits_[flow].rate.gbps(); }

  Instant now_ = Instant::from_ns(1'000'000'000);
  std::optional<PaceSenders> senders_;
  std::array<Controller*, kFlows> flows_{};
  std::array<FlowStats, kFlows> stats_{};
  std::array<FlowLimits, kFlows> limits_{};
  uint16_t epoch_ = 0;
};

TEST_F(CcPaceDeparture, NextMessageNeedsNoAcknowledgement) {
  for (uint32_t flow = 0; flow < 2; ++flow) hold(flow, 400);
  for (uint32_t flow = 0; flow < 2; ++flow) want(flow, kBrief);
  EXPECT_EQ(gbps(0), 400);
  expect_begins_after(1, kLeaves);
}

TEST_F(CcPaceDeparture, ThirdMessageFollowsTheSecond) {
  for (uint32_t flow = 0; flow < 3; ++flow) hold(flow, 400);
  for (uint32_t flow = 0; flow < 3; ++flow) want(flow, kBrief);
  expect_begins_after(2, kLeaves * 2);
}

// The departure of a message depends on the rates in between.
TEST_F(CcPaceDeparture, SlowerMessageLeavesLater) {
  for (uint32_t flow = 0; flow < 2; ++flow) hold(flow, 400);
  want(0, kBrief);
  want(1, kBrief * 4);
  run(kLeaves / 2);
  hold(0, 100);
  look(0);
  settle();
  ASSERT_EQ(gbps(0), 100);
  run(kLeaves * 2 - Duration::from_us(1));
  EXPECT_NEAR(gbps(1), 300, 4) << "half of the first message takes four times as long";
  run(Duration::from_us(2));
  EXPECT_EQ(gbps(1), 400);
}

TEST_F(CcPaceDeparture, SignalCorrectsTheEstimate) {
  for (uint32_t flow = 0; flow < 2; ++flow) hold(flow, 400);
  for (uint32_t flow = 0; flow < 2; ++flow) want(flow, kBrief);
  run(kLeaves / 2);
  signal(0, kBrief / 10);  // less than its rate would have sent
  expect_begins_after(1, kLeaves * 9 / 10);
}

TEST_F(CcPaceDeparture, BytesThatAreAddedHaveNotLeft) {
  for (uint32_t flow = 0; flow < 2; ++flow) hold(flow, 400);
  for (uint32_t flow = 0; flow < 2; ++flow) want(flow, kBrief);
  run(kLeaves / 2);
  want(0, kBrief);
  expect_begins_after(1, kLeaves * 3 / 2);
}

// Its credit holds it back, not its rate.
TEST_F(CcPaceDeparture, MessageThatWaitsForItsGrantHasNotLeft) {
  hold(0, 400, /*busy=*/true);
  want(0, kBrief * 3);
  const Bytes first = limits_[0].credit;
  ASSERT_LT(first, kBrief * 3);
  run(kRoundTrip * 3 / 4);
  signal(0, first);
  run(kLongPath.pause * 2);
  EXPECT_EQ(limits_[0].credit, ~Bytes{0}) << "it is looked at again, and waits no longer";
}

// Withdrawn writes are never acknowledged.
TEST_F(CcPaceDeparture, WithdrawnMessageFreesTheLink) {
  for (uint32_t flow = 0; flow < 2; ++flow) hold(flow, 400);
  for (uint32_t flow = 0; flow < 2; ++flow) want(flow, kBrief);
  stats_[0].backlog = 0;
  look(0);
  settle();
  EXPECT_EQ(gbps(1), 400);
}

}  // namespace
}  // namespace pacecar::departure_test
