// A link estimate that was learnt from flows that met a queue, when other flows send in their
// place.
#include <gtest/gtest.h>

#include "tests/unit/cc/pace/covered_estimate.h"

namespace pacecar::witnesses_test {
namespace {

using test::CoveredEstimate;
using test::kNominal;
using test::kWindow;

// A link estimate that has learnt a quarter of the nominal rate from flow 0.
CoveredEstimate learnt(Instant& now) {
  CoveredEstimate estimate;
  now = Instant::from_ns(1'000'000'000);
  while (!estimate.learnt()) {
    now = now + estimate.time_at(kNominal / 4);
    estimate.on_packet(now, test::kQueue);
  }
  return estimate;
}

// The share of the nominal rate after `windows` at the full rate; `flow_of` is the flow of a
// packet.
template <typename FlowOf>
double share_after(CoveredEstimate estimate, Instant now, int windows, Duration late,
                   FlowOf flow_of) {
  const Instant end = now + kWindow * windows;
  for (uint32_t packet = 0; now < end; ++packet) {
    now = now + estimate.time_at(estimate.rate());
    estimate.on_packet(now, late, flow_of(packet));
  }
  return estimate.rate() / kNominal;
}
constexpr auto kTheSame = [](uint32_t) { return 0U; };
constexpr auto kAnother = [](uint32_t) { return 1U; };
constexpr auto kInTurn = [](uint32_t packet) { return 1 + packet / 16; };
constexpr auto kBoth = [](uint32_t packet) { return packet % 2; };

// The flows of one phase cross a narrow core, and the flows of the next phase do not.
TEST(CcPaceWitnesses, EstimateRecoversAtOnceForFlowsThatMeetNoQueue) {
  Instant now;
  const CoveredEstimate estimate = learnt(now);
  EXPECT_EQ(share_after(estimate, now, 12, Duration(), kAnother), 1);
  EXPECT_LT(share_after(estimate, now, 12, Duration(), kTheSame), 0.6)
      << "the same flow may meet the queue again";
}

TEST(CcPaceWitnesses, EstimateStaysWhenAWitnessSendsOrAnotherQueueStands) {
  Instant now;
  const CoveredEstimate estimate = learnt(now);
  constexpr Duration kSmallQueue = Duration::from_us(100);
  EXPECT_EQ(share_after(estimate, now, 40, kSmallQueue, kInTurn),
            share_after(estimate, now, 40, kSmallQueue, kTheSame));
  EXPECT_EQ(share_after(estimate, now, 10, Duration(), kBoth),
            share_after(estimate, now, 10, Duration(), kTheSame));
}

}  // namespace
}  // namespace pacecar::witnesses_test
