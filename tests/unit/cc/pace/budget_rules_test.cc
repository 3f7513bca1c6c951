// The rules by which a LinkBudget forgets, grows and yields: pauses, bursts, weights, neighbors;
// and the signals that the senders of `pace` pass to it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <utility>

#include "cc/host_link.h"
#include "cc/pace/link_budget.h"
#include "cc/pace/sender.h"

namespace pacecar::budget_rules_test {
namespace {

constexpr double kNominal = 1e9;
constexpr Bytes kPacket = 4200;
constexpr Duration kWindow = Duration::from_us(540);  // the law's: 16 packets at the nominal rate
constexpr Duration kQueue = Duration::from_us(500);

LinkBudgetConfig config(double first = 0, Duration round_trip = Duration::from_us(100)) {
  return {.line = Rate::from_bps(static_cast<uint64_t>(kNominal)),
          .first = Rate::from_bps(static_cast<uint64_t>(first)),
          .packet = kPacket,
          .round_trip = round_trip,
          .jitter = Duration::from_us(10),
          .base_memory = Duration::from_ms(400)};
}

class CcPaceBudgetRules : public ::testing::Test {
 protected:
  // Packets at a share of the nominal rate, all with this delay.
  void arrive(LinkBudget& budget, double share, Duration late, Duration span, uint32_t flow = 0) {
    const auto gap = static_cast<int64_t>(kPacket * 8e9 / (kNominal * share));
    for (const Instant end = now_ + span; now_ < end; now_ = now_ + Duration::from_ns(gap)) {
      budget.on_bytes(now_, kPacket, late, flow);
    }
  }
  // Packets at the whole budget that meet no queue.
  void use_all(LinkBudget& budget, Duration span, uint32_t flow) {
    for (const Instant end = now_ + span; now_ < end;) {
      now_ = now_ + Duration::from_ns(static_cast<int64_t>(kPacket * 8e9 / budget.rate()));
      budget.on_bytes(now_, kPacket, Duration(), flow);
    }
  }
  // The share of the nominal rate after a pause.
  double after_pause(LinkBudget& budget, Duration pause) {
    now_ = now_ + pause;
    budget.on_bytes(now_, kPacket, Duration());
    return budget.rate() / kNominal;
  }

  Instant now_ = Instant::from_ns(1'000'000'000);
};

// Delays vary more on long paths.
TEST_F(CcPaceBudgetRules, ToleratedDelayFollowsTheMeasuredRoundTrip) {
  LinkBudget budget(config());
  budget.set_round_trip(Duration::from_ms(10));
  arrive(budget, 0.5, kQueue, Duration::from_ms(20));
  EXPECT_FALSE(budget.learnt());
  arrive(budget, 0.5, kQueue * 6, Duration::from_ms(20));
  EXPECT_TRUE(budget.learnt());
}

// A cut shows after a round trip: what arrives until then says nothing about it.
TEST_F(CcPaceBudgetRules, NoCutFollowsBeforeTheLastOneShows) {
  for (const bool far : {false, true}) {
    LinkBudget budget(config());
    if (far) budget.set_round_trip(Duration::from_ms(10));
    while (!budget.learnt()) arrive(budget, 0.5, kQueue * 6, Duration::from_us(100));
    const double cut = budget.rate();
    arrive(budget, 0.2, kQueue * 6, Duration::from_ms(9));
    EXPECT_EQ(budget.rate() == cut, far);
  }
}

// --- pauses ---

// A pause is long after 32 windows, the longest measuring time, and four times the delay of the
// last arrivals: 69.3 ms.
TEST_F(CcPaceBudgetRules, LongPauseBringsBackTheNominalRate) {
  for (const int64_t pause_ms : {68, 71}) {
    LinkBudget budget(config());
    arrive(budget, 0.5, kQueue, Duration::from_ms(20));
    ASSERT_LT(budget.rate(), 0.6 * kNominal);
    EXPECT_EQ(after_pause(budget, Duration::from_ms(pause_ms)) == 1, pause_ms == 71);
  }
}

// A packet comes every 17 ms or so.
TEST_F(CcPaceBudgetRules, OnASlowLinkOnlyALongerPauseCounts) {
  LinkBudget budget(config());
  arrive(budget, 0.002, Duration::from_ms(30), Duration::from_s(4));
  ASSERT_LT(budget.rate(), 0.003 * kNominal);
  EXPECT_LT(after_pause(budget, Duration::from_ms(250)), 0.003);
  EXPECT_EQ(after_pause(budget, Duration::from_ms(900)), 1);
}

TEST_F(CcPaceBudgetRules, PauseBringsBackTheLastRateOfALinkOfUnknownRate) {
  LinkBudget budget(config(0.5 * kNominal));
  EXPECT_EQ(after_pause(budget, Duration::from_s(30)), 0.5)
      << "the first rate, as nothing is learnt yet";
  while (budget.rate() == 0.5 * kNominal) arrive(budget, 0.3, kWindow * 10, kWindow / 4);
  const double draining = budget.rate() / kNominal;
  const double after = after_pause(budget, Duration::from_s(30));
  EXPECT_GT(after, 1.6 * draining);
  EXPECT_LT(after, 0.4);
}

// --- bursts ---

// A quarter of a round trip's bytes, here 37 packets, may leave at once under any budget. So
// shorter bursts do not show that the budget is used.
TEST_F(CcPaceBudgetRules, BurstWithinAQuarterRoundTripDoesNotGrowTheBudget) {
  for (const int packets : {35, 40}) {
    LinkBudget budget(config(0.5 * kNominal, Duration::from_ms(10)));
    const auto gap = Duration::from_ns(static_cast<int64_t>(kPacket * 8e9 / (0.5 * kNominal)));
    for (int burst = 0; burst < 100; ++burst) {
      for (int i = 0; i < packets; ++i, now_ = now_ + gap) {
        budget.on_bytes(now_, kPacket, Duration());
      }
      now_ = now_ + gap * packets;
    }
    EXPECT_EQ(budget.rate() > 0.5 * kNominal, packets == 40);
  }
}

// --- weights ---

TEST_F(CcPaceBudgetRules, HigherWeightToleratesALongerQueue) {
  LinkBudget budget(config());
  budget.set_weight(64, 1);
  arrive(budget, 0.5, kQueue, Duration::from_ms(20));
  EXPECT_EQ(budget.rate(), kNominal);
  budget.set_weight(64, 1.0 / 64);
  arrive(budget, 0.5, Duration::from_ms(2), Duration::from_ms(20));
  EXPECT_LT(budget.rate(), 0.52 * kNominal) << "one of 64 processes tolerates less";
}

// --- a queue on a path ---

// When the flows that met the queue have stopped, the budget of another flow grows as fast as at
// first.
TEST_F(CcPaceBudgetRules, QueueOfOtherFlowsDoesNotReduceAFlowsBudget) {
  for (const uint32_t flow : {0U, 1U}) {
    LinkBudget budget(config());
    arrive(budget, 0.3, kQueue, kWindow * 20, 0);
    ASSERT_LT(budget.rate(), 0.4 * kNominal);
    use_all(budget, kWindow * 12, flow);
    EXPECT_EQ(budget.rate() > 0.85 * kNominal, flow == 1);
  }
}

TEST_F(CcPaceBudgetRules, HighestFlowNumberIsAWitnessToo) {
  for (const uint32_t flow : {63U, 1U}) {
    LinkBudget budget(config());
    arrive(budget, 0.3, kQueue, kWindow * 20, 63);
    ASSERT_LT(budget.rate(), 0.4 * kNominal);
    use_all(budget, kWindow * 12, flow);
    EXPECT_EQ(budget.rate() > 0.85 * kNominal, flow == 1);
  }
}

// --- neighbors that keep a queue ---

// A neighbor gives way to the rate that we keep; a link that has become slow does not.
TEST_F(CcPaceBudgetRules, SlowLinkIsNotTakenForANeighbor) {
  constexpr Duration kKept = Duration::from_ms(3);
  LinkBudget budget(config());
  const auto use = [&](double link, Duration span) {
    for (const Instant end = now_ + span; now_ < end;) {
      const double rate = std::min(budget.rate(), link);
      now_ = now_ + Duration::from_ns(static_cast<int64_t>(kPacket * 8e9 / rate));
      budget.on_bytes(now_, kPacket, kKept);
    }
  };
  use(0.6 * kNominal, Duration::from_ms(380));
  ASSERT_GE(budget.rate(), 0.4 * kNominal) << "a neighbor is recognized";
  double least = kNominal;
  for (int i = 0; i < 60; ++i) {
    use(0.1 * kNominal, Duration::from_ms(5));
    least = std::min(least, budget.rate());
  }
  EXPECT_LT(least, 0.11 * kNominal);
}

// --- even parts ---

// Other processes of the host, which have learnt a higher rate.
class Host final : public HostLink {
 public:
  void claim(Instant, const LinkClaim&) override {}
  bool due(Instant) const override { return false; }
  Instant next_deadline() const override { return Instant::never(); }
  uint32_t place() const override { return 0; }
  Rate part() const override { return line; }
  Rate reach() const override { return line; }
  Rate prospect(uint32_t) const override { return line; }
  double share_of_weights() const override { return share; }
  Rate fair_part(Rate learnt) override {
    asked += learnt > Rate() ? 1 : 0;
    return learnt > Rate() ? Rate::from_bps(800'000'000) : Rate();
  }
  Rate used_by_others() const override { return {}; }

  Rate line = Rate::from_gbps(1);
  double share = 1;
  int asked = 0;
};

TEST_F(CcPaceBudgetRules, BudgetMovesAnEighthTowardsTheFairPartPerWindow) {
  Host host;
  LinkBudgetConfig shared = config();
  shared.host_link = &host;
  LinkBudget budget(shared);
  while (!budget.learnt()) arrive(budget, 0.4, kQueue, kWindow / 4);
  arrive(budget, 0.4, kQueue, kWindow / 4);
  for (int window = 0; window < 12; ++window) {
    const int asked = host.asked;
    const double missing = 0.8 * kNominal - budget.rate();
    arrive(budget, budget.rate() / kNominal, Duration::from_us(200), kWindow);
    EXPECT_NEAR(host.asked, asked + 1, 1) << window;
    EXPECT_LE(0.8 * kNominal - budget.rate(), missing);
    EXPECT_GT(0.8 * kNominal - budget.rate(), 0.7 * missing);
  }
  EXPECT_NEAR(host.asked, 11, 4);
}

// --- signals of the senders ---

constexpr FlowEnvironment kFabric{.line_rate = Rate::from_gbps(400),
                                  .mtu = 4096,
                                  .overhead = 64,
                                  .burst_bytes = 4096,
                                  .base_rtt = Duration::from_us(8)};

class CcPaceBudgetOfSenders : public ::testing::Test {
 protected:
  // Acknowledgements of a flow that gets half of the link, in batches of `batch`. after() returns
  // the least that this flow and another one may send meanwhile.
  struct Acks {
    Duration late = Duration::from_us(6);
    int batch = 1;
    int without_round_trip_of = 0;  // one of so many; 0: none
  };
  double after(const FlowEnvironment& environment, const Acks& acks) {
    PaceConstants constants;
    constants.core_start = 1;
    PaceSenders senders(environment, constants, 2);
    std::array<Controller*, 2> flows = {&senders.add_flow(now_, 0), &senders.add_flow(now_, 1)};
    for (Controller* flow : flows) {
      flow->on_grant(now_, {.rate = Rate::from_gbps(400), .validity = Duration::from_s(9)});
      flow->demand(now_, {.backlog = 1 << 30});
    }
    Controller& flow = *flows[0];
    const Duration apart = Duration::from_ns(166);
    Bytes sent = 64 * 4096;
    double least = 400;
    std::array<uint32_t, 2> changed;
    while (senders.poll_changed(now_, changed) > 0) continue;
    for (int i = 0; i < 1000; ++i) {
      if (i % acks.batch == 0) now_ = now_ + apart * acks.batch;
      sent += 4096;
      const auto is_one_of = [i](int many) { return many > 0 && i % many == 0; };
      const Duration waited = apart * (acks.batch - 1 - i % acks.batch);
      const Duration rtt = environment.base_rtt + acks.late + waited;
      flow.on_ack(now_, {.rtt = is_one_of(acks.without_round_trip_of) ? Duration() : rtt,
                         .acked = 4096,
                         .in_flight = 64 * 4096,
                         .sent = sent});
      least = std::min(least, flow.decide(now_).rate.gbps() + flows[1]->decide(now_).rate.gbps());
    }
    return least;
  }

  Instant now_ = Instant::from_ns(1'000'000'000);
};

TEST_F(CcPaceBudgetOfSenders, AcknowledgementsUnderAQueueReduceTheBudgetAlsoInBatches) {
  EXPECT_LT(after(kFabric, {}), 250);
  EXPECT_LT(after(kFabric, {.batch = 8}), 250);
}

// The bytes that they acknowledge have arrived.
TEST_F(CcPaceBudgetOfSenders, AcknowledgementsWithoutARoundTripCountForTheRate) {
  const double rate = after(kFabric, {});
  EXPECT_NEAR(after(kFabric, {.without_round_trip_of = 2}), rate, 0.2 * rate);
}

// Packets of 64 processes meet by chance; the same delay with one process is a queue.
TEST_F(CcPaceBudgetOfSenders, LongerDelayIsToleratedAmongManyProcesses) {
  Host host;
  host.line = kFabric.line_rate;
  FlowEnvironment environment = kFabric;
  environment.host_link = &host;
  EXPECT_LT(after(environment, {}), 250);
  host.share = 1.0 / 64;
  EXPECT_GT(after(environment, {}), 390);
}

TEST_F(CcPaceBudgetOfSenders, SendersLeaveQueuesToReceiversThatTimeArrivals) {
  FlowEnvironment environment = kFabric;
  environment.receivers_time_arrivals = true;
  EXPECT_GT(after(environment, {}), 390);
}

}  // namespace
}  // namespace pacecar::budget_rules_test
