// `pace` on hosts that are later than their jitter: overloaded, emulated, or woken late. The delay
// that they add is not a queue of the core, and must not stop a flow.
#include <gtest/gtest.h>

#include <algorithm>

#include "cc/pace/core_limit.h"
#include "transport/base/prng.h"

namespace pacecar::late_hosts_test {
namespace {

constexpr PaceConstants kConstants;
constexpr double kLine = 10e9;
constexpr Bytes kPacket = 4096;
constexpr Duration kRoundTrip = Duration::from_us(100);

constexpr Duration kJitter = Duration::from_us(100);  // as configured

// The core limit of a flow over a device that may carry less than the flow may send.
struct LateHosts {
  explicit LateHosts(Duration jitter)
      : core({.line_rate = Rate::from_bps(static_cast<uint64_t>(kLine)),
              .mtu = kPacket,
              .overhead = 64,
              .burst_bytes = kPacket,
              .base_rtt = kRoundTrip,
              .jitter = jitter},
             kConstants) {}

  // Acknowledges packets one by one, each with a random delay of at most `latest`.
  void carry(double carried, Duration latest, int packets) {
    for (int i = 0; i < packets; ++i) {
      const double rate = std::min(core.rate(), carried);
      now = now + Duration::from_ns(static_cast<int64_t>(kPacket * 8e9 / rate));
      const auto late = static_cast<int64_t>(random.below(static_cast<uint64_t>(latest.ns()) + 1));
      const auto in_flight = static_cast<Bytes>(rate / 8 * (kRoundTrip + latest).seconds());
      acked += kPacket;
      core.on_ack(now,
                  {.rtt = kRoundTrip + Duration::from_ns(late),
                   .acked = kPacket,
                   .in_flight = in_flight,
                   .sent = acked + in_flight},
                  rate);
    }
  }

  CoreLimit core;
  Prng random{1};
  Bytes acked = 0;
  Instant now = Instant::from_ns(1'000'000'000);
};

TEST(CcPaceLateHosts, FlowKeepsALeastRateAndRecovers) {
  for (const Duration jitter : {Duration(), kJitter}) {
    LateHosts hosts(jitter);
    hosts.carry(kLine, Duration(), 1000);
    ASSERT_EQ(hosts.core.rate(), kLine);
    hosts.carry(0.001 * kLine, Duration::from_ms(4), 10'000);
    EXPECT_GE(hosts.core.rate(), kLine / 256);
    hosts.carry(kLine, Duration(), 200);
    EXPECT_GE(hosts.core.rate(), 0.9 * kLine);
  }
}

// On hosts with jitter a few late packets do not show congestion.
TEST(CcPaceLateHosts, FlowUsesWhatTheDeviceCarries) {
  LateHosts hosts(kJitter);
  const double carried = 0.05 * kLine;
  hosts.carry(carried, Duration::from_ms(4), 10'000);
  EXPECT_GE(hosts.core.rate(), carried);
  hosts.core.restart(0.001 * kLine);
  hosts.carry(carried, Duration::from_ms(4), 1000);
  EXPECT_GE(hosts.core.rate(), carried);
}

// A silence is one sign of congestion, however many probes time out during it.
TEST(CcPaceLateHosts, TimeoutsInARowCountOnce) {
  LateHosts hosts(kJitter);
  hosts.carry(kLine, Duration(), 1000);
  for (int i = 0; i < 8; ++i) hosts.core.on_timeout(hosts.core.rate());
  EXPECT_NEAR(hosts.core.rate(), kLine / 2, 1);
  hosts.carry(kLine, Duration(), 1);
  hosts.core.on_timeout(hosts.core.rate());
  EXPECT_NEAR(hosts.core.rate(), kLine / 4, 1) << "a timeout after an acknowledgement counts again";
}

// A flow that was below the least rate, as its receiver granted less, stays there.
TEST(CcPaceLateHosts, TimeoutDoesNotRaiseTheRate) {
  LateHosts hosts(kJitter);
  hosts.core.restart(0.001 * kLine);
  hosts.core.on_timeout(hosts.core.rate());
  EXPECT_LE(hosts.core.rate(), 0.001 * kLine);
}

}  // namespace
}  // namespace pacecar::late_hosts_test
