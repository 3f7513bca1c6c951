// How receiver and senders of `pace` use a HostLink, scripted here: their claims, and that they
// keep to their part.
#include "cc/host_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "cc/pace/receiver.h"
#include "cc/pace/sender.h"
#include "tests/unit/cc/pace/covered_estimate.h"

namespace pacecar::host_link_test {
namespace {

constexpr Duration kRoundTrip = Duration::from_us(8);
constexpr Bytes kEndless = Bytes{1} << 30;
constexpr Bytes kPacket = 4160;

class ScriptedHostLink final : public HostLink {
 public:
  void claim(Instant, const LinkClaim& claim) override {
    claims.push_back(claim);
    wakes = false;
  }
  bool due(Instant now) const override { return wakes || now >= deadline; }
  Instant next_deadline() const override { return deadline; }
  uint32_t place() const override { return 0; }
  Rate part() const override { return given; }
  Rate reach() const override { return could; }
  Rate prospect(uint32_t weight) const override {
    asked_weight = weight;
    return expected;
  }
  double share_of_weights() const override { return 1; }
  Rate fair_part(Rate learnt) override {
    published.push_back(learnt);
    return learnt == Rate() || fair == Rate() ? learnt : fair;
  }
  Rate used_by_others() const override { return others; }

  LinkClaim last() const { return claims.empty() ? LinkClaim() : claims.back(); }

  Rate given = Rate::from_gbps(400);
  Rate could = Rate::from_gbps(400);
  Rate expected = Rate::from_gbps(400);
  Rate others;
  Rate fair;  // 0: the learnt rate itself
  std::vector<Rate> published;
  bool wakes = false;
  Instant deadline = Instant::never();
  std::vector<LinkClaim> claims;
  mutable uint32_t asked_weight = 0;
};

FlowEnvironment behind(HostLink& link) {
  return {.line_rate = Rate::from_gbps(400),
          .mtu = 4096,
          .overhead = 64,
          .burst_bytes = 4096,
          .base_rtt = kRoundTrip,
          .host_link = &link};
}

// --- the receiver ---

class CcPaceReceiverHostLink : public ::testing::Test {
 protected:
  static constexpr uint32_t kFlows = 4;

  void begin(uint32_t flow, Rate usable = Rate::from_gbps(400)) {
    receiver_.on_posted(now_, flow, kEndless);
    demand(flow, usable);
  }
  void demand(uint32_t flow, Rate usable) {
    const Bytes wanted = usable > Rate() ? kEndless : 0;
    receiver_.on_demand(now_, flow, {.usable = usable, .wanted = wanted, .epoch = ++epoch_[flow]});
  }
  // Polls all grants that are due within this time.
  void run(Duration span) {
    for (const Instant end = now_ + span;;) {
      std::array<GrantUpdate, 8> words;
      for (int rounds = 0; rounds < 1000; ++rounds) {
        const size_t count = receiver_.poll_grants(now_, words);
        for (size_t i = 0; i < count; ++i) granted_[words[i].flow] = words[i].grant.rate.gbps();
        if (count == 0 && receiver_.next_deadline() > now_) break;
      }
      if (now_ == end) return;
      now_ = std::clamp(receiver_.next_deadline(), now_ + Duration::from_ns(1), end);
    }
  }
  // Active flows repeat their demands.
  void repeat_demands(Duration span, uint32_t flows) {
    for (const Instant end = now_ + span; now_ < end;) {
      run(kRoundTrip);
      for (uint32_t flow = 0; flow < flows; ++flow) demand(flow, Rate::from_gbps(400));
    }
    run(kRoundTrip);
  }

  // Whether the newest grant of the idle flow is marked busy.
  bool granted_busy() {
    bool busy = false;
    for (int i = 0; i < 8; ++i) {
      link_.wakes = true;
      now_ = now_ + kRoundTrip;
      std::array<GrantUpdate, 8> words;
      const size_t count = receiver_.poll_grants(now_, words);
      for (size_t k = 0; k < count; ++k) busy = words[k].grant.busy;
    }
    return busy;
  }

  ScriptedHostLink link_;
  PaceReceiver receiver_{behind(link_), kFlows};
  std::array<uint16_t, kFlows> epoch_{};
  std::array<double, kFlows> granted_{};
  Instant now_ = Instant::from_ns(1'000'000'000);
};

TEST_F(CcPaceReceiverHostLink, ReceiverClaimsUsableRateAndWeightOfItsFlows) {
  receiver_.add_flow(now_, 0);
  run(kRoundTrip);
  EXPECT_TRUE(link_.last().ready) << "the flow of the process may begin";
  for (uint32_t flow = 1; flow < 3; ++flow) receiver_.add_flow(now_, flow);
  receiver_.set_weight(now_, 1, 4);
  run(kRoundTrip);
  EXPECT_EQ(link_.last().demand, Rate());
  begin(0, Rate::from_gbps(30));
  begin(1, Rate::from_gbps(60));
  run(kRoundTrip);
  EXPECT_NEAR(link_.last().demand.gbps(), 90 / PaceConstants{}.shared, 1);
  EXPECT_EQ(link_.last().weight, 5U);
  begin(2);
  run(kRoundTrip);
  EXPECT_EQ(link_.last().demand, Rate::from_gbps(400)) << "never more than the link";
  for (uint32_t flow = 0; flow < 3; ++flow) demand(flow, Rate());
  run(kRoundTrip);
  EXPECT_EQ(link_.last().demand, Rate());
  EXPECT_TRUE(link_.last().ready);
  for (uint32_t flow = 0; flow < 3; ++flow) receiver_.remove_flow(now_, flow);
  run(kRoundTrip);
  EXPECT_FALSE(link_.last().ready);
}

TEST_F(CcPaceReceiverHostLink, FlowsShareThePartOfTheProcess) {
  for (uint32_t flow = 0; flow < 2; ++flow) receiver_.add_flow(now_, flow);
  link_.given = Rate::from_gbps(100);
  for (uint32_t flow = 0; flow < 2; ++flow) begin(flow);
  repeat_demands(kRoundTrip * 4, 2);
  EXPECT_LE(granted_[0] + granted_[1], 100);
  EXPECT_GE(granted_[0] + granted_[1], 95);
  EXPECT_NEAR(granted_[0], granted_[1], 2);
  link_.given = Rate::from_gbps(40);
  link_.wakes = true;
  repeat_demands(kRoundTrip, 2);
  EXPECT_LE(granted_[0] + granted_[1], 40);
  link_.given = Rate::from_gbps(300);
  link_.wakes = true;
  repeat_demands(kRoundTrip, 2);
  EXPECT_GE(granted_[0] + granted_[1], 285);
}

TEST_F(CcPaceReceiverHostLink, IdleFlowHoldsTheProspectOfTheProcess) {
  receiver_.add_flow(now_, 0);
  link_.given = Rate::from_gbps(10);
  link_.expected = Rate::from_gbps(100);
  run(kRoundTrip);
  receiver_.on_posted(now_, 0, kEndless);
  run(kRoundTrip);
  EXPECT_EQ(receiver_.grant(0).rate, Rate::from_gbps(100));
  EXPECT_EQ(link_.asked_weight, 1U);
  link_.expected = Rate::from_gbps(20);
  link_.wakes = true;
  run(kRoundTrip * 2);
  EXPECT_EQ(receiver_.grant(0).rate, Rate::from_gbps(20));
}

// The first CTS leaves before the next poll, so its grant must be current.
TEST_F(CcPaceReceiverHostLink, ProspectIsReadWhenAReceiveIsPosted) {
  receiver_.add_flow(now_, 0);
  run(kRoundTrip);
  link_.expected = Rate::from_gbps(50);
  link_.wakes = true;
  receiver_.on_posted(now_, 0, kEndless);
  EXPECT_EQ(receiver_.grant(0).rate, Rate::from_gbps(50));
}

TEST_F(CcPaceReceiverHostLink, NewFlowHasItsProspectForARoundTripThenItsPart) {
  receiver_.add_flow(now_, 0);
  link_.given = Rate::from_gbps(25);
  link_.expected = Rate::from_gbps(100);
  run(kRoundTrip);
  begin(0);
  run(kRoundTrip / 2);
  EXPECT_NEAR(granted_[0], 100, 1) << "the other processes have not been cut yet";
  repeat_demands(kRoundTrip * 4, 1);
  EXPECT_NEAR(granted_[0], 25, 1);
}

TEST_F(CcPaceReceiverHostLink, PartAboveTheProspectCountsAtOnce) {
  receiver_.add_flow(now_, 0);
  link_.given = Rate::from_gbps(200);
  link_.expected = Rate::from_gbps(100);
  run(kRoundTrip);
  begin(0);
  repeat_demands(kRoundTrip, 1);
  EXPECT_NEAR(granted_[0], 200, 3);
}

TEST_F(CcPaceReceiverHostLink, ReceiverClaimsAgainOnlyOnAChangeOrWhenDue) {
  receiver_.add_flow(now_, 0);
  begin(0);
  repeat_demands(kRoundTrip * 4, 1);
  const size_t before = link_.claims.size();
  repeat_demands(kRoundTrip * 100, 1);
  EXPECT_EQ(link_.claims.size(), before);
  link_.wakes = true;
  run(kRoundTrip);
  EXPECT_EQ(link_.claims.size(), before + 1);
  EXPECT_EQ(link_.claims[before], link_.claims[before - 1]);
}

TEST_F(CcPaceReceiverHostLink, HostLinkDeadlineWakesTheReceiver) {
  receiver_.add_flow(now_, 0);
  run(kRoundTrip);
  EXPECT_EQ(receiver_.next_deadline(), Instant::never());
  link_.deadline = now_ + Duration::from_ms(3);
  EXPECT_EQ(receiver_.next_deadline(), link_.deadline);
  now_ = link_.deadline;
  const size_t before = link_.claims.size();
  std::array<GrantUpdate, 8> words;
  receiver_.poll_grants(now_, words);
  EXPECT_EQ(link_.claims.size(), before + 1);
}

TEST_F(CcPaceReceiverHostLink, LinkInUseByOthersIsBusy) {
  receiver_.add_flow(now_, 0);
  receiver_.on_posted(now_, 0, kEndless);
  run(kRoundTrip);
  link_.others = Rate::from_gbps(300);
  link_.expected = Rate::from_gbps(200);
  EXPECT_TRUE(granted_busy()) << "a flow that begins waits for its own grant";
}

TEST_F(CcPaceReceiverHostLink, LinkOfUnknownRateIsNotBusyWithOthers) {
  receiver_.add_flow(now_, 0);
  receiver_.on_posted(now_, 0, kEndless);
  run(kRoundTrip);
  link_.others = Rate::from_gbps(12'000);
  link_.expected = Rate::from_gbps(4'000);
  EXPECT_FALSE(granted_busy()) << "it is not known whether others reduce our rate";
}

TEST_F(CcPaceReceiverHostLink, PartIsLimitedToTheLinkRate) {
  receiver_.add_flow(now_, 0);
  link_.given = link_.expected = Rate::from_gbps(10'000);
  begin(0);
  repeat_demands(kRoundTrip * 4, 1);
  EXPECT_LE(granted_[0], 400);
  EXPECT_GE(granted_[0], 390);
}

TEST_F(CcPaceReceiverHostLink, OnALinkOfUnknownRateUnusedRateIsGrantedAtOnce) {
  for (uint32_t flow = 0; flow < 2; ++flow) receiver_.add_flow(now_, flow);
  link_.given = Rate::from_gbps(10'000);
  link_.expected = Rate::from_gbps(4'000);
  begin(0, Rate::from_gbps(10));
  begin(1);
  run(Duration::from_ns(1));
  EXPECT_GT(granted_[1], 350) << "the rate that flow 0 does not use";
}

// --- the link estimate ---

// One that has learnt half of the nominal rate, behind a queue.
test::CoveredEstimate learnt_behind(HostLink& link, Instant& now) {
  test::CoveredEstimate estimate(behind(link), kRoundTrip);
  for (int i = 0; i < 10'000 && !estimate.learnt(); ++i) {
    now = now + Rate::from_gbps(200).time_for(kPacket);
    estimate.on_packet(now, kRoundTrip / 2);
  }
  EXPECT_TRUE(estimate.learnt());
  return estimate;
}

TEST(CcPaceEstimateHostLink, EstimateMovesTowardsTheFairPart) {
  for (const uint64_t fair_gbps : {50, 300}) {
    ScriptedHostLink link;
    Instant now = Instant::from_ns(1'000'000'000);
    test::CoveredEstimate estimate = learnt_behind(link, now);
    link.fair = Rate::from_gbps(fair_gbps);
    estimate.use(now, 1, Duration::from_us(1), kRoundTrip * 80);
    EXPECT_NEAR(estimate.rate() / 1e9, fair_gbps, 0.15 * fair_gbps);
    EXPECT_GT(link.published.back(), Rate());
  }
}

TEST(CcPaceEstimateHostLink, UnusedEstimateIsNotPublished) {
  ScriptedHostLink link;
  Instant now = Instant::from_ns(1'000'000'000);
  test::CoveredEstimate estimate = learnt_behind(link, now);
  estimate.link().set_use(0.3 * estimate.rate(), 1);
  estimate.use(now, 0.3, Duration::from_us(1), kRoundTrip * 20);
  const double before = estimate.rate();
  link.fair = Rate::from_gbps(390);
  link.published.clear();
  estimate.use(now, 0.3, Duration::from_us(1), kRoundTrip * 80);
  EXPECT_EQ(estimate.rate(), before);
  EXPECT_THAT(link.published, testing::SizeIs(testing::Gt(10)));
  EXPECT_THAT(link.published, testing::Each(Rate()));
}

// --- the senders ---

class CcPaceSendersHostLink : public ::testing::Test {
 protected:
  CcPaceSendersHostLink() {
    for (uint32_t flow = 0; flow < 2; ++flow) {
      flows_[flow] = &senders_.add_flow(now_, flow);
      flows_[flow]->on_grant(now_, {.rate = Rate::from_gbps(400), .validity = Duration::from_s(9)});
    }
  }
  // The usable rate in the demand of the flow, in Gb/s.
  double want(uint32_t flow, Bytes backlog) {
    const auto demand = flows_[flow]->demand(now_, {.backlog = backlog});
    return demand ? demand->usable.gbps() : 0;
  }
  void turn() {
    std::array<uint32_t, 8> changed;
    while (senders_.poll_changed(now_, changed) > 0) {
    }
  }
  double gbps(uint32_t flow) { return flows_[flow]->decide(now_).rate.gbps(); }
  static PaceConstants clear_core() {
    PaceConstants constants;
    constants.core_start = 1;
    return constants;
  }

  ScriptedHostLink link_;
  Instant now_ = Instant::from_ns(1'000'000'000);
  PaceSenders senders_{behind(link_), clear_core(), 4};
  std::array<Controller*, 2> flows_{};
};

TEST_F(CcPaceSendersHostLink, SendersClaimWhatActiveFlowsCouldUse) {
  turn();
  EXPECT_EQ(link_.last().demand, Rate());
  senders_.set_weight(now_, 1, 3);
  want(0, kEndless);
  want(1, kEndless);
  turn();
  EXPECT_EQ(link_.last().demand, Rate::from_gbps(400)) << "never more than the link";
  EXPECT_EQ(link_.last().weight, 4U);
  flows_[0]->on_grant(
      now_,
      {.rate = Rate::from_gbps(30), .aligned = true, .validity = Duration::from_s(9), .epoch = 1});
  flows_[1]->on_grant(
      now_,
      {.rate = Rate::from_gbps(50), .aligned = true, .validity = Duration::from_s(9), .epoch = 1});
  turn();
  EXPECT_NEAR(link_.last().demand.gbps(), 80, 1);
  want(0, 0);
  want(1, 0);
  turn();
  EXPECT_EQ(link_.last().demand, Rate());
}

// A claim that depended on the part that it leads to would never settle.
TEST_F(CcPaceSendersHostLink, ClaimOfBriefMessagesDoesNotDependOnThePart) {
  link_.given = link_.could = Rate::from_gbps(200);
  turn();
  for (uint32_t flow = 0; flow < 2; ++flow) want(flow, 200'000);
  uint16_t epoch = 0;
  for (const uint64_t part : {200, 50, 100, 50}) {
    link_.given = Rate::from_gbps(part);
    link_.wakes = true;
    ++epoch;
    for (Controller* flow : flows_) {
      flow->on_grant(now_, {.rate = Rate::from_gbps(50),
                            .aligned = true,
                            .validity = Duration::from_s(9),
                            .epoch = epoch});
    }
    turn();
    for (uint32_t flow = 0; flow < 2; ++flow) gbps(flow);
    turn();
    EXPECT_NEAR(link_.last().demand.gbps(), 100, 1) << part;
  }
}

TEST_F(CcPaceSendersHostLink, FlowsShareThePartOfTheProcess) {
  link_.given = link_.could = Rate::from_gbps(100);
  want(0, kEndless);
  want(1, kEndless);
  turn();
  EXPECT_LE(gbps(0) + gbps(1), 100);
  EXPECT_NEAR(gbps(0), 50, 1);
  EXPECT_NEAR(gbps(1), 50, 1);
  link_.given = link_.could = Rate::from_gbps(20);
  link_.wakes = true;
  turn();
  EXPECT_LE(gbps(0) + gbps(1), 20);
  link_.given = link_.could = Rate::from_gbps(10'000);
  link_.wakes = true;
  turn();
  EXPECT_LE(gbps(0) + gbps(1), 400);
  EXPECT_GE(gbps(0) + gbps(1), 390);
}

TEST_F(CcPaceSendersHostLink, LapsedGrantLeavesASmallShareOfThePart) {
  link_.given = link_.could = Rate::from_gbps(40);
  want(0, kEndless);
  turn();
  now_ = now_ + Duration::from_s(10);
  EXPECT_NEAR(gbps(0), 40.0 / 256, 0.01);
}

TEST_F(CcPaceSendersHostLink, FlowsAffectedByANewPartAreReported) {
  want(0, kEndless);
  turn();
  link_.given = link_.could = Rate::from_gbps(100);
  link_.wakes = true;
  std::array<uint32_t, 8> changed;
  ASSERT_EQ(senders_.poll_changed(now_, changed), 1U);
  EXPECT_EQ(changed[0], 0U);
}

// The receiver grants at most the advertised rate. If the flow advertised its small part, the part
// would stay small.
TEST_F(CcPaceSendersHostLink, DemandAdvertisesTheReachablePart) {
  link_.given = Rate::from_gbps(50);
  link_.could = Rate::from_gbps(200);
  link_.wakes = true;
  turn();
  EXPECT_NEAR(want(0, kEndless), 200, 3);
  EXPECT_LE(gbps(0), 50);
}

TEST_F(CcPaceSendersHostLink, PartAndReachMayChangeIndependently) {
  link_.given = Rate::from_gbps(100);
  want(0, kEndless);
  turn();
  EXPECT_NEAR(gbps(0), 100, 1);
  link_.given = Rate::from_gbps(200);
  link_.wakes = true;
  turn();
  EXPECT_NEAR(gbps(0), 200, 1);
  link_.could = Rate::from_gbps(250);
  link_.wakes = true;
  turn();
  EXPECT_NEAR(want(0, kEndless), 250, 3);
}

TEST_F(CcPaceSendersHostLink, SendersClaimAgainOnlyOnAChangeOrWhenDue) {
  want(0, kEndless);
  turn();
  const size_t before = link_.claims.size();
  for (int i = 0; i < 100; ++i) {
    now_ = now_ + kRoundTrip;
    turn();
  }
  EXPECT_EQ(link_.claims.size(), before);
  link_.wakes = true;
  turn();
  EXPECT_EQ(link_.claims.size(), before + 1);
}

TEST_F(CcPaceSendersHostLink, HostLinkDeadlineWakesTheSenders) {
  want(0, kEndless);
  turn();
  link_.deadline = now_ + Duration::from_ns(700);
  EXPECT_EQ(senders_.next_deadline(), link_.deadline);
  now_ = link_.deadline;
  const size_t before = link_.claims.size();
  link_.deadline = now_ + Duration::from_ns(1);
  link_.wakes = true;
  turn();
  EXPECT_EQ(link_.claims.size(), before + 1);
}

}  // namespace
}  // namespace pacecar::host_link_test
