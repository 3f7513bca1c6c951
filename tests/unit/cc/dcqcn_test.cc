#include "cc/dcqcn.h"

#include <gtest/gtest.h>

#include "tests/support/cc_script.h"
#include "tests/support/golden.h"

namespace pacecar::dcqcn_test {
namespace {

constexpr Bytes kMtu = 1000;
const FlowEnvironment kFlow{.line_rate = Rate::from_gbps(25),
                            .mtu = kMtu,
                            .overhead = 48,
                            .burst_bytes = kMtu,
                            .base_rtt = Duration::from_us(10)};
const FlowSignal kMarked{.marked = kMtu};

TEST(CcDcqcn, CutsByMarksAndRecoversByTime) {
  DcqcnController dcqcn(kFlow);
  test::CcScript s(dcqcn, kMtu);
  s.ack("ack", 1, {}).loss().timeout();
  s.note("the first mark: alpha is 1, the cut comes with the next tick, 4 us later");
  s.ack("mark", 1, kMarked).wait(Duration::from_us(3)).look().wait(Duration::from_us(1)).look();
  s.note("without a mark no further cut; after 300 us half-way back to the old rate, after 600 us");
  s.note("and later the target grows too, up to the line rate");
  s.wait(Duration::from_us(299)).look();
  for (int i = 0; i < 4; ++i) s.wait(i == 0 ? Duration::from_us(1) : Duration::from_us(300)).look();
  s.note("a steady stream of marks: a cut every 4 us, down to the least rate");
  for (int i = 0; i < 24; ++i) s.wait(Duration::from_us(1)).ack("mark", 1, kMarked);
  s.note("the target stayed where it was before the first of these cuts");
  for (int i = 0; i < 3; ++i) s.wait(Duration::from_us(300)).look();
  s.note("long after");
  s.wait(Duration::from_s(3600)).look();
  test::expect_golden("cc/dcqcn.txt", s.text());
}

// Otherwise a decision after a year would first compute the increases of that year.
TEST(CcDcqcn, NoIncreaseIsPendingAtTheLineRate) {
  DcqcnController dcqcn(kFlow);
  dcqcn.on_ack({}, {.marked = kMtu});
  const Instant second = Instant() + Duration::from_s(1);
  EXPECT_EQ(dcqcn.decide(second).rate, kFlow.line_rate);
  EXPECT_EQ(dcqcn.decide(second + Duration::from_s(365 * 24 * 3600)).rate, kFlow.line_rate);
}

TEST(CcDcqcn, AlphaFollowsTheShareOfTimeWithMarks) {
  DcqcnController dcqcn(kFlow);
  Instant now;
  const auto run = [&](int us, int marked_every) {
    for (int i = 1; i <= us; ++i) {
      now = now + Duration::from_us(1);
      FlowSignal sample{.acked = kMtu};
      sample.echo_marked = i % marked_every == 0;
      dcqcn.on_ack(now, sample);
    }
  };
  run(2000, 1);
  EXPECT_NEAR(dcqcn.alpha(), 1, 1e-3);
  run(5000, 4);
  EXPECT_NEAR(dcqcn.alpha(), 0.25, 0.01);
}

// The rate in Mb/s after a cut, an increase, a cut and an increase: the second cut brings the
// target below the line, so that the last increase counts in full.
double rate_after_second_increase(Rate line, uint64_t additive_mbps) {
  FlowEnvironment flow = kFlow;
  flow.line_rate = line;
  DcqcnConstants constants;
  constants.fast_recovery = 0;
  constants.additive_increase = Rate::from_bps(additive_mbps * 1'000'000);
  DcqcnController dcqcn(flow, constants);
  for (const int64_t us : {0, 304}) {
    dcqcn.on_ack(Instant() + Duration::from_us(us), {.marked = kMtu});
  }
  return dcqcn.decide(Instant() + Duration::from_us(608)).rate.gbps() * 1e3;
}

TEST(CcDcqcn, IncreasesScaleWithTheLine) {
  for (const uint64_t scale : {1, 4}) {
    const Rate line = Rate::from_gbps(25 * scale);
    const double gained =
        rate_after_second_increase(line, 15) - rate_after_second_increase(line, 5);
    EXPECT_NEAR(gained, 5.0 * static_cast<double>(scale), 1e-3) << "half-way to the target";
  }
}

}  // namespace
}  // namespace pacecar::dcqcn_test
