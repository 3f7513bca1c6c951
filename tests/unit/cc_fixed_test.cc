#include <gtest/gtest.h>

#include "cc/fixed.h"
#include "tests/support/cc_script.h"
#include "tests/support/golden.h"

namespace pacecar {
namespace {

constexpr Bytes kMtu = 1024;

TEST(CcFixed, IgnoresTheNetworkButNotTheReceiver) {
  FixedController fixed(
      {.line_rate = Rate::from_gbps(10), .mtu = kMtu, .burst_bytes = {}, .base_rtt = {}});
  testing::CcScript s(fixed, kMtu);
  s.ack(5000, 10).loss().timeout();
  s.grant(Rate::from_gbps(4), Duration::from_us(20), Duration::from_ms(1), 1);
  s.wait(Duration::from_us(1500)).look();
  s.note("a grant of nothing still leaves the least rate");
  s.grant(Rate(), Duration(), Duration(), 2);
  testing::expect_golden("cc/fixed.txt", s.text());
}

TEST(CcFixed, WindowCoversTwoRoundTripsAndEightBursts) {
  FlowEnvironment e{
      .line_rate = Rate::from_gbps(10), .mtu = kMtu, .burst_bytes = 60 * kMtu, .base_rtt = {}};
  EXPECT_EQ(FixedController(e).decide(Instant()).window, 2'500'000U) << "1 ms assumed";
  e.base_rtt = Duration::from_us(100);
  EXPECT_EQ(FixedController(e).decide(Instant()).window, 8 * 60 * kMtu);
}

}  // namespace
}  // namespace pacecar
