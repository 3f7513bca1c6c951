// What the receiver's half of `pace` counts: posted receives, phases, bytes still to come, and
// traffic that no grant covers.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "cc/pace/phase.h"
#include "tests/support/pace_receiver.h"

namespace pacecar::accounts_test {
namespace {

using namespace test;

class CcPaceAccounts : public PaceReceiverTest {
 protected:
  void arrive(uint32_t flow, Bytes bytes, Duration late = {}) {
    receiver_.on_arrival(now_, flow, bytes,
                         {static_cast<uint32_t>((kRoundTrip / 2 + late).ns()), 4096});
  }
  // One message of each of several flows at once, from its demand to its end.
  void episode(uint32_t flows, Bytes bytes) {
    for (uint32_t flow = 0; flow < flows; ++flow) demand(flow, kLine, wanted_[flow] += bytes);
    run(kRoundTrip * 2);
    for (uint32_t flow = 0; flow < flows; ++flow) arrive(flow, bytes);
    run(kRoundTrip * 2);
    now_ = now_ + kRoundTrip * 2;
    run(kRoundTrip);
  }

  std::array<Bytes, 8> wanted_{};
};

// --- receives posted ---

TEST_F(CcPaceAccounts, IdleFlowsWithReceivesPostedDivideTheLink) {
  const auto expect_hold = [this](double gbps) {
    receiver_.on_hint(now_, {});  // makes the receiver compute grants
    run(kRoundTrip * 4);
    expect_rate(0, gbps);
    now_ = now_ + kRoundTrip;
  };
  add(4);
  post(0, 1);
  post(1, 1);
  post(1, 1);
  expect_hold(kShared / 2);
  post(2, 0);
  expect_hold(kShared / 2);
  post(3, 1);
  expect_hold(kShared / 3);
  receiver_.on_finished(now_, 1, 2);
  receiver_.on_finished(now_, 2, 1);
  expect_hold(kShared / 2);
  receiver_.remove_flow(now_, 2);
  expect_hold(kShared / 2);
  post(1, 1);
  receiver_.remove_flow(now_, 3);
  expect_hold(kShared / 2);
  receiver_.remove_flow(now_, 1);
  expect_hold(kLine);
}

// The grant in a CTS already counts the receive that the CTS advertises.
TEST_F(CcPaceAccounts, FirstReceiveCountsInItsOwnCts) {
  add(5);
  for (uint32_t flow = 0; flow < 4; ++flow) post(flow);
  EXPECT_NEAR(receiver_.grant(0).rate.gbps(), kShared / 4, 1);
  EXPECT_NEAR(receiver_.grant(4).rate.gbps(), kShared / 5, 1);
}

TEST_F(CcPaceAccounts, LastIdleFlowIsGrantedTheNewHold) {
  PaceReceiver receiver(kFabric, 2);
  std::array<GrantUpdate, 4> words;
  for (uint32_t flow = 0; flow < 2; ++flow) {
    receiver.add_flow(now_, flow);
    receiver.on_posted(now_, flow, 1);
  }
  receiver.poll_grants(now_, words);
  receiver.on_finished(now_, 0, 1);
  receiver.on_hint(now_, {});
  while (receiver.next_deadline() != Instant::never()) {
    now_ = std::max(now_, receiver.next_deadline());
    receiver.poll_grants(now_, words);
  }
  EXPECT_EQ(receiver.grant(1).rate, kFabric.line_rate);
}

TEST_F(CcPaceAccounts, ValidityIsFourRoundTripsOnLongPaths) {
  FlowEnvironment environment = kFabric;
  environment.base_rtt = Duration::from_us(100);
  PaceReceiver receiver(environment, 1);
  receiver.add_flow(now_, 0);
  EXPECT_EQ(receiver.grant(0).validity, environment.base_rtt * 4);
}

// --- places in the gap ---

TEST_F(CcPaceAccounts, TwoActiveFlowsAreHalfAGapApart) {
  const auto apart = [this](uint32_t one, uint32_t other) {
    std::map<uint32_t, double> place;  // in the gap
    for (int i = 0; i < 20; ++i) {
      now_ = now_ + Duration::from_us(1);
      for (const uint32_t flow : {one, other}) arrive(flow, 64);
      for (const auto& [flow, grant] : poll()) {
        const double gap = pace_gap_ns(grant.rate, 4096, 4096, 64);
        const Duration point = now_ - Instant() + grant.phase;
        place[flow] = modulo(static_cast<double>(point.ns()), gap) / gap;
      }
    }
    return std::abs(place[one] - place[other]);
  };
  add(3);
  begin(0);
  run(kRoundTrip);
  begin(2);
  run(kRoundTrip);
  EXPECT_NEAR(apart(0, 2), 0.5, 0.02);
  // A new flow gets the phase of a removed one.
  receiver_.remove_flow(now_, 2);
  epochs_.erase(2);
  receiver_.remove_flow(now_, 1);
  receiver_.add_flow(now_, 1);
  begin(1);
  run(kRoundTrip);
  EXPECT_NEAR(apart(0, 1), 0.5, 0.02);
}

// --- bytes still to come ---

TEST_F(CcPaceAccounts, FinishingFlowCountsAgainWhenItWantsMore) {
  add(2);
  begin(0);
  begin(1, kLine, 4'000'000);
  run(kRoundTrip * 2);
  arrive(1, 3'900'000);
  run(kRoundTrip / 2);
  EXPECT_GE(rates_[0], kShared * (1 - kTolerance))
      << "flow 1 is about to finish, and needs no part";
  demand(1, kLine, 40'000'000);
  run(kRoundTrip);
  expect_rate(0, kShared / 2);
}

// At the lower rate, the rest of flow 1 takes longer than its grant was counted for.
TEST_F(CcPaceAccounts, FinishingFlowCountsAgainWhenItsGrantIsCut) {
  add(12);
  begin(0);
  begin(1, kLine, 4'000'000);
  run(kRoundTrip * 2);
  arrive(1, 3'830'000);
  run(kRoundTrip / 2);
  EXPECT_GE(rates_[0], kShared * (1 - kTolerance));
  for (uint32_t flow = 2; flow < 12; ++flow) begin(flow);
  run(kRoundTrip * 2);
  EXPECT_LE(sum(), kShared * (1 + kTolerance));
}

TEST_F(CcPaceAccounts, DemandOfZeroCountsEarlierBytesAsArrived) {
  add(1);
  begin(0);
  demand(0, 0, 1'000'000);
  demand(0, kLine, 2'000'000);
  EXPECT_EQ(receiver_.active_flows(), 1U);
  arrive(0, 1'000'000);
  EXPECT_EQ(receiver_.active_flows(), 0U);
}

TEST_F(CcPaceAccounts, SpareRateIsSharedByWeight) {
  add(3);
  receiver_.set_weight(now_, 2, 2);
  for (uint32_t flow = 0; flow < 3; ++flow) begin(flow, 50);
  run(kRoundTrip * 2);
  const double spare = (kShared - 150) / 4;
  expect_rate(0, 50 + spare);
  expect_rate(2, 50 + 2 * spare);
}

// --- brief messages ---

class CcPaceBriefAccounts : public CcPaceAccounts {
 protected:
  // The grant of flow 1 while flow 0 has a brief message.
  double beside_a_brief_message() {
    demand(0, kLine, wanted_[0] += 250'000);
    demand(1, kLine, wanted_[1] + kEndless);
    run(kRoundTrip * 2);
    return rates_[1];
  }
  void learn() {
    add(2);
    for (uint32_t flow = 0; flow < 2; ++flow) post(flow);
    run(kRoundTrip);
    for (int i = 0; i < 6; ++i) episode(2, 100'000);
    expect_rate(0, kShared / 2);
  }
};

TEST_F(CcPaceBriefAccounts, MessageTakesItsPart) {
  learn();
  EXPECT_LE(beside_a_brief_message(), kShared / 2 * (1 + kTolerance));
}

TEST_F(CcPaceBriefAccounts, MessageThatBeginsWithAGuessTakesItsPart) {
  add(2);
  for (uint32_t flow = 0; flow < 2; ++flow) post(flow);
  run(kRoundTrip);
  EXPECT_LE(beside_a_brief_message(), kShared / 2 * (1 + kTolerance));
}

TEST_F(CcPaceBriefAccounts, MessageThatWaitsOnABusyLinkTakesItsPart) {
  learn();
  demand(1, kLine, wanted_[1] += 20'000'000);
  run(kRoundTrip * 4);
  demand(0, kLine, wanted_[0] += 250'000);
  run(kRoundTrip);
  expect_rate(1, kShared / 2);
}

TEST_F(CcPaceAccounts, LongMessageSharesWithAShorterOne) {
  add(2);
  begin(0);
  begin(1, kLine, 1'000'000);
  run(kRoundTrip * 2);
  expect_rate(0, kShared / 2);
  expect_rate(1, kShared / 2);
}

// --- traffic that no grant covers ---

// Flow 1 sends without a demand, at less than its hold: its demand is not taken as lost.
TEST_F(CcPaceAccounts, UncoveredTrafficIsSubtractedFromGrants) {
  add(2);
  begin(0);
  begin(1, kLine, 2'000'000);
  run(kRoundTrip);
  arrive(1, 2'000'000);
  run(kRoundTrip * 2);
  now_ = now_ + kRoundTrip * 2;
  ASSERT_EQ(receiver_.active_flows(), 1U);
  const double before = rates_[0];
  const double trickle = 0.4 * receiver_.grant(1).rate.gbps();
  for (int i = 0; i < 400; ++i) {
    now_ = now_ + Duration::from_ns(static_cast<int64_t>(4160 * 8 / trickle));
    arrive(1, 4096);
    if (i % 20 == 0) arrive(0, 64);
    poll();
  }
  EXPECT_NEAR(rates_[0], before - trickle, 0.05 * kLine);
}

TEST_F(CcPaceAccounts, ForeignTrafficLowersGrantsWithinARoundTrip) {
  add(2);
  begin(0);
  begin(1);
  run(kRoundTrip);
  const Instant began = now_;
  for (int i = 0; now_ - began < kRoundTrip * 5 / 4; ++i) {  // before grants are repeated
    now_ = now_ + Duration::from_ns(336);
    receiver_.on_foreign_arrival(now_, 4096);
    poll();
  }
  EXPECT_LT(sum(), kShared - 40);
}

// --- queues ---

class CcPaceQueues : public CcPaceAccounts {
 protected:
  static constexpr Duration kQueue = Duration::from_us(6);

  // What two flows are granted that get half of the link. Packets leave one after another and
  // arrive in batches; with `foreign`, some batches are others' traffic.
  double granted_after_a_queue(double usable_gbps, Bytes batch, bool foreign) {
    add(2);
    begin(0, usable_gbps);
    begin(1, usable_gbps);
    for (uint32_t flow = 0; flow < 2; ++flow) arrive(flow, 4096);
    run(kRoundTrip * 4);
    const Duration apart = Duration::from_ns(166);
    for (Bytes packets = 0; packets < 3000; packets += batch) {
      now_ = now_ + apart * static_cast<int64_t>(batch);
      const bool others = foreign && packets % 4 == 0;
      for (Bytes i = 0; i < batch; ++i) {
        if (others) {
          receiver_.on_foreign_arrival(now_, 4096);
        } else {
          arrive(0, 4096, kQueue + apart * static_cast<int64_t>(batch - 1 - i));
        }
      }
      arrive(1, 64, kQueue);
      poll();
    }
    return sum();
  }
};

TEST_F(CcPaceQueues, ArrivalsUnderAStandingQueueSetTheLinkEstimate) {
  EXPECT_LT(granted_after_a_queue(kLine, 1, false), 240);
}

TEST_F(CcPaceQueues, BatchedArrivalsUnderAQueueSetTheLinkEstimate) {
  EXPECT_LT(granted_after_a_queue(kLine, 8, false), 240);
}

TEST_F(CcPaceQueues, ArrivalsUnderAQueueCountBesideForeignTraffic) {
  EXPECT_LT(granted_after_a_queue(kLine, 1, true), 240);
}

// Such senders are limited by the core, which has the queue.
TEST_F(CcPaceQueues, QueueOfSendersBelowTheLinkRateIsNotTheLinks) {
  EXPECT_GT(granted_after_a_queue(120, 1, false), 240);
}

}  // namespace
}  // namespace pacecar::accounts_test
