// A budget that was learnt from flows that met a queue, when other flows send in their place.
#include <gtest/gtest.h>

#include "cc/pace/link_budget.h"

namespace pacecar::witnesses_test {
namespace {

constexpr double kNominal = 1e9;
constexpr Bytes kPacket = 4200;
constexpr Duration kWindow = Duration::from_us(540);  // the law's: 16 packets at the nominal rate

// A budget that has learnt a quarter of the nominal rate from flow 0.
LinkBudget learnt(Instant& now) {
  LinkBudget budget({.line = Rate::from_bps(static_cast<uint64_t>(kNominal)),
                     .packet = kPacket,
                     .round_trip = Duration::from_us(100),
                     .jitter = Duration::from_us(10),
                     .base_memory = Duration::from_ms(400)});
  now = Instant::from_ns(1'000'000'000);
  while (!budget.learnt()) {
    now = now + Duration::from_ns(static_cast<int64_t>(kPacket * 8e9 / (kNominal / 4)));
    budget.on_bytes(now, kPacket, Duration::from_us(500));
  }
  return budget;
}

// The share of the nominal rate after `windows` at the full budget; `flow_of` is the flow of a
// packet.
template <typename FlowOf>
double share_after(LinkBudget budget, Instant now, int windows, Duration late, FlowOf flow_of) {
  const Instant end = now + kWindow * windows;
  for (uint32_t packet = 0; now < end; ++packet) {
    now = now + Duration::from_ns(static_cast<int64_t>(kPacket * 8e9 / budget.rate()));
    budget.on_bytes(now, kPacket, late, flow_of(packet));
  }
  return budget.rate() / kNominal;
}
constexpr auto kTheSame = [](uint32_t) { return 0U; };
constexpr auto kAnother = [](uint32_t) { return 1U; };
constexpr auto kInTurn = [](uint32_t packet) { return 1 + packet / 16; };
constexpr auto kBoth = [](uint32_t packet) { return packet % 2; };

// The flows of one phase cross a narrow core, and those of the next do not.
TEST(CcPaceWitnesses, BudgetRecoversAtOnceForFlowsThatMeetNoQueue) {
  Instant now;
  const LinkBudget budget = learnt(now);
  EXPECT_EQ(share_after(budget, now, 12, Duration(), kAnother), 1);
  EXPECT_LT(share_after(budget, now, 12, Duration(), kTheSame), 0.6)
      << "the same flow may meet the queue again";
}

TEST(CcPaceWitnesses, BudgetStaysWhenAWitnessSendsOrAnotherQueueStands) {
  Instant now;
  const LinkBudget budget = learnt(now);
  constexpr Duration kSmallQueue = Duration::from_us(100);
  EXPECT_EQ(share_after(budget, now, 40, kSmallQueue, kInTurn),
            share_after(budget, now, 40, kSmallQueue, kTheSame));
  EXPECT_EQ(share_after(budget, now, 10, Duration(), kBoth),
            share_after(budget, now, 10, Duration(), kTheSame));
}

}  // namespace
}  // namespace pacecar::witnesses_test
