#include "cc/timely.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/cc_script.h"
#include "tests/support/golden.h"

namespace pacecar::timely_test {
namespace {

constexpr Bytes kMtu = 1000;
const FlowEnvironment kFlow{.line_rate = Rate::from_gbps(25),
                            .mtu = kMtu,
                            .overhead = 48,
                            .burst_bytes = kMtu,
                            .base_rtt = Duration::from_us(10)};

// One round trip of `us`.
void round(test::CcScript& script, int64_t us) {
  script.wait(Duration::from_us(us))
      .ack(fmt::format("rtt={}us", us), 11, {.rtt = Duration::from_us(us)});
}

TEST(CcTimely, FollowsTheGradientBetweenTheThresholds) {
  TimelyController timely(kFlow);
  test::CcScript s(timely, kMtu);
  s.note("the first round trip is only remembered; growing ones slow down by their growth");
  for (const int64_t us : {40, 60, 80, 90}) round(s, us);
  s.note("once per round trip; an acknowledgement without a round trip changes nothing");
  s.ack("rtt=200us, same round", 1, {.rtt = Duration::from_us(200)});
  s.ack("no rtt", 11, {}).loss().timeout();
  s.note("shrinking: additive increases, and the sixth in a row is larger");
  for (int64_t us = 88; us >= 74; us -= 2) round(s, us);
  s.note("over the high threshold, even when shrinking");
  round(s, 1000);
  round(s, 900);
  s.note("under the low threshold, even when growing");
  for (const int64_t us : {10, 30, 49}) round(s, us);
  s.note("never below the least rate");
  for (const int64_t us : {100, 200, 300, 400}) round(s, us);
  test::expect_golden("cc/timely.txt", s.text());
}

}  // namespace
}  // namespace pacecar::timely_test
