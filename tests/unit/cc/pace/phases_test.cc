// The phases of a flow of `pace` at its sender: the arrows of the drawing in sender.h that the
// other tests do not take.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>

#include "cc/pace/sender.h"

namespace pacecar::phases_test {
namespace {

constexpr Bytes kMtu = 4096;
constexpr Duration kRoundTrip = Duration::from_us(8);
constexpr Duration kValidity = Duration::from_us(50);
constexpr Bytes kBrief = 300'000;  // a round trip's worth is 400'000
constexpr Bytes kEndless = Bytes{1} << 30;
constexpr FlowEnvironment kFabric{.line_rate = Rate::from_gbps(400),
                                  .mtu = kMtu,
                                  .overhead = 64,
                                  .burst_bytes = kMtu,
                                  .base_rtt = kRoundTrip};

PaceConstants clear_core() {
  PaceConstants constants;
  constants.core_start = 1;
  return constants;
}

class CcPacePhases : public ::testing::Test {
 protected:
  static constexpr uint32_t kFlows = 4;
  CcPacePhases() {
    for (uint32_t flow = 0; flow < kFlows; ++flow) flows_[flow] = &senders_.add_flow(now_, flow);
  }
  void grant(uint32_t flow, uint64_t gbps, Grant word = {}) {
    word.rate = Rate::from_gbps(gbps);
    word.validity = kValidity;
    word.epoch = ++epoch_;
    flows_[flow]->on_grant(now_, word);
  }
  void answer(uint32_t flow, uint64_t gbps) { grant(flow, gbps, {.aligned = true}); }
  std::optional<Demand> look(uint32_t flow) {
    const auto demand = flows_[flow]->demand(now_, stats_[flow]);
    flows_[flow]->decide(now_);
    return demand;
  }
  void want(uint32_t flow, Bytes bytes) {
    stats_[flow].backlog += bytes;
    look(flow);
  }
  void acknowledge(uint32_t flow, Bytes bytes) {
    FlowStats& stats = stats_[flow];
    stats.acked += bytes;
    stats.backlog -= bytes;
    stats.sent = std::max(stats.sent, stats.acked);
    flows_[flow]->on_ack(now_, {.rtt = kRoundTrip, .acked = bytes, .sent = stats.sent});
    look(flow);
  }
  void finish(uint32_t flow) { acknowledge(flow, stats_[flow].backlog); }
  void wait(Duration span) { now_ = now_ + span; }
  FlowLimits decide(uint32_t flow) { return flows_[flow]->decide(now_); }
  double gbps(uint32_t flow) { return decide(flow).rate.gbps(); }
  // Its grant has not come for two validities, but acknowledgements have.
  void lose_the_receiver(uint32_t flow) {
    wait(kValidity * 2);
    acknowledge(flow, kMtu);
    ASSERT_EQ(decide(flow).limited_by, LimitedBy::kNetwork);
  }

  Instant now_ = Instant::from_ns(1'000'000'000);
  PaceSenders senders_{kFabric, clear_core(), kFlows};
  std::array<Controller*, kFlows> flows_{};
  std::array<FlowStats, kFlows> stats_{};
  uint16_t epoch_ = 0;
};

// --- from kIdle ---

TEST_F(CcPacePhases, FlowWithoutAGrantBeginsUngoverned) {
  want(0, kEndless);
  EXPECT_EQ(gbps(0), 400);
  EXPECT_EQ(decide(0).limited_by, LimitedBy::kLine);
  EXPECT_EQ(decide(0).credit, ~Bytes{0});
}

TEST_F(CcPacePhases, FlowOfALateReceiverBeginsUngoverned) {
  answer(0, 100);
  want(0, kEndless);
  lose_the_receiver(0);
  finish(0);
  wait(kRoundTrip);
  want(0, kEndless);
  EXPECT_EQ(decide(0).limited_by, LimitedBy::kNetwork);
}

TEST_F(CcPacePhases, BriefMessageBeginsOpeningOnAnIdleLink) {
  answer(0, 100);
  want(0, kBrief);
  EXPECT_NEAR(gbps(0), 120, 1) << "it makes a queue of half a round trip at its hold: 50 kB";
}

TEST_F(CcPacePhases, LongMessageBeginsOpeningAtAGuess) {
  grant(0, 20, {.aligned = true, .guessed = true});
  want(0, kEndless);
  EXPECT_NEAR(gbps(0), 80, 1) << "one of four flows begins";
}

TEST_F(CcPacePhases, LongMessageBeginsObeyingItsHold) {
  answer(0, 100);
  want(0, kEndless);
  EXPECT_EQ(gbps(0), 100);
  EXPECT_EQ(decide(0).credit, ~Bytes{0});
}

TEST_F(CcPacePhases, AnyMessageBeginsAskingOnABusyLink) {
  for (const Bytes message : {Bytes{50'000}, kBrief, kEndless}) {
    grant(0, 100, {.busy = true});
    want(0, message);
    EXPECT_EQ(gbps(0), 100);
    const Bytes first = stats_[0].sent + Rate::from_gbps(100).bytes_in(kRoundTrip / 4);
    EXPECT_EQ(decide(0).credit, first);
    finish(0);
  }
}

// --- to kObeying ---

TEST_F(CcPacePhases, OpeningFlowObeysTheFirstGrantThatIsNoGuess) {
  grant(0, 20, {.aligned = true, .guessed = true});
  want(0, kEndless);
  grant(0, 30, {.aligned = true, .guessed = true});
  EXPECT_NEAR(gbps(0), 120, 1) << "another guess";
  answer(0, 40);
  EXPECT_EQ(gbps(0), 40);
}

TEST_F(CcPacePhases, AskingFlowObeysTheFirstGrantThatIsNotBusy) {
  grant(0, 100, {.busy = true});
  want(0, kEndless);
  const Bytes first = decide(0).credit;
  wait(kRoundTrip / 2);
  grant(0, 90, {.busy = true});
  EXPECT_EQ(decide(0).credit, first) << "the hold of idle flows has changed";
  answer(0, 70);
  EXPECT_EQ(decide(0).credit, ~Bytes{0});
  EXPECT_EQ(gbps(0), 70);
}

TEST_F(CcPacePhases, UngovernedFlowObeysItsFirstGrant) {
  want(0, kEndless);
  answer(0, 70);
  EXPECT_EQ(gbps(0), 70);
  EXPECT_EQ(decide(0).limited_by, LimitedBy::kGrant);
}

// --- between kObeying and kLeading ---

// Four brief messages: the even part is 100.
TEST_F(CcPacePhases, FlowThatIsGrantedAboutWhatItCouldUseLeads) {
  for (const uint64_t granted : {59, 61}) {
    for (uint32_t flow = 0; flow < 4; ++flow) answer(flow, 60);
    for (uint32_t flow = 0; flow < 4; ++flow) want(flow, kBrief);
    for (uint32_t flow = 0; flow < 4; ++flow) look(flow);
    answer(3, granted);
    for (uint32_t flow = 0; flow < 3; ++flow) finish(flow);
    EXPECT_NEAR(gbps(3), granted == 61 ? 400 : 59, 0.1)
        << "the last one that leads has the link, without another grant";
    answer(3, 50);
    EXPECT_NEAR(gbps(3), 50, 0.1) << "a grant of less is obeyed";
    wait(kRoundTrip);
    finish(3);
  }
}

TEST_F(CcPacePhases, FlowThatIsAloneDoesNotLead) {
  answer(0, 300);
  want(0, kBrief);
  answer(0, 310);
  EXPECT_EQ(gbps(0), 310);
}

// --- to kUngoverned ---

TEST_F(CcPacePhases, GrantThatLapsesWithoutAcknowledgementsStillGoverns) {
  answer(0, 100);
  want(0, kEndless);
  wait(kValidity * 4);
  EXPECT_EQ(decide(0).limited_by, LimitedBy::kGrant);
  acknowledge(0, kMtu);
  EXPECT_EQ(decide(0).limited_by, LimitedBy::kNetwork);
}

// A word that was sent before, and comes late or twice, does not show that the receiver lives.
TEST_F(CcPacePhases, UngovernedFlowHeedsNoOldGrant) {
  answer(0, 100);
  want(0, kEndless);
  lose_the_receiver(0);
  flows_[0]->on_grant(now_, {.rate = Rate::from_gbps(100), .validity = kValidity, .epoch = epoch_});
  EXPECT_EQ(decide(0).limited_by, LimitedBy::kNetwork);
}

// The receiver may have lost the last one.
TEST_F(CcPacePhases, UngovernedFlowRepeatsItsDemand) {
  answer(0, 100);
  want(0, kEndless);
  lose_the_receiver(0);
  const uint16_t epoch = look(0)->epoch;
  for (int i = 0; i < 25; ++i) {
    wait(kRoundTrip);
    acknowledge(0, kMtu);
  }
  EXPECT_NE(look(0)->epoch, epoch);
}

TEST_F(CcPacePhases, CoreLimitIsRestoredWhenTheReceiverIsBackWhileTheFlowIsIdle) {
  answer(0, 100);
  want(0, kEndless);
  lose_the_receiver(0);
  finish(0);
  answer(0, 390);
  want(0, kEndless);
  EXPECT_EQ(gbps(0), 390);
}

// --- to kIdle ---

TEST_F(CcPacePhases, FlowIsIdleWhenAllIsAcknowledged) {
  const auto begin = [this](uint32_t flow, int phase) {
    if (phase == 0) grant(flow, 100, {.aligned = true, .guessed = true});  // opening
    if (phase == 1) grant(flow, 100, {.busy = true});                      // asking
    if (phase == 2) answer(flow, 100);                                     // obeying
    if (phase == 3) lose_the_receiver(flow);                               // ungoverned
  };
  want(1, kEndless);
  for (int phase = 0; phase < 4; ++phase) {
    if (phase < 3) begin(0, phase);
    want(0, kEndless);
    if (phase == 3) begin(0, phase);
    EXPECT_LT(gbps(1), 399) << phase;
    EXPECT_NE(flows_[0]->explain(now_).limited_by, LimitedBy::kApplication) << phase;
    wait(kRoundTrip);
    finish(0);
    EXPECT_EQ(gbps(1), 400) << phase;
    EXPECT_EQ(flows_[0]->explain(now_).limited_by, LimitedBy::kApplication) << phase;
    EXPECT_EQ(decide(0).credit, ~Bytes{0}) << phase;
  }
}

}  // namespace
}  // namespace pacecar::phases_test
