// `pace` on hosts that are late by more than they say: overloaded, emulated, or woken late. What
// they add to round trips is no queue of the core, and must not stop a flow.
#include <gtest/gtest.h>

#include <algorithm>

#include "cc/pace/core_limit.h"
#include "transport/base/prng.h"

namespace pacecar {
namespace {

constexpr PaceConstants kConstants;
constexpr double kLine = 10e9;
constexpr Bytes kPacket = 4096;
constexpr Duration kRoundTrip = Duration::from_us(100);

constexpr Duration kJitter = Duration::from_us(100);  // as told

// c_f of a flow over a device that carries little, or as much as the flow may send.
struct LateHosts {
  explicit LateHosts(Duration jitter)
      : core({.line_rate = Rate::from_bps(static_cast<uint64_t>(kLine)),
              .mtu = kPacket,
              .overhead = 64,
              .burst_bytes = kPacket,
              .base_rtt = kRoundTrip,
              .jitter = jitter},
             kConstants) {}

  // Packets that are acknowledged one by one, each up to `latest` later than the path takes.
  void carry(double carried, Duration latest, int packets) {
    for (int i = 0; i < packets; ++i) {
      const double rate = std::min(core.rate(), carried);
      now = now + Duration::from_ns(static_cast<int64_t>(kPacket * 8e9 / rate));
      const auto late = static_cast<int64_t>(random.below(static_cast<uint64_t>(latest.ns()) + 1));
      const auto in_flight = static_cast<Bytes>(rate / 8 * (kRoundTrip + latest).seconds());
      acked += kPacket;
      core.on_ack({.now = now,
                   .rtt = kRoundTrip + Duration::from_ns(late),
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

TEST(CcPaceLateHosts, AFlowGoesOnAndIsBackSoon) {
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

// Where hosts are late by chance, few packets say nothing of the core.
TEST(CcPaceLateHosts, WhatTheDeviceCarriesIsUsed) {
  LateHosts hosts(kJitter);
  const double carried = 0.05 * kLine;
  hosts.carry(carried, Duration::from_ms(4), 10'000);
  EXPECT_GE(hosts.core.rate(), carried);
  hosts.core.restart(0.001 * kLine);
  hosts.carry(carried, Duration::from_ms(4), 1000);
  EXPECT_GE(hosts.core.rate(), carried);
}

// A silence is one sign of congestion, however often the NIC asks during it.
TEST(CcPaceLateHosts, TimeoutsInARowCountOnce) {
  LateHosts hosts(kJitter);
  hosts.carry(kLine, Duration(), 1000);
  for (int i = 0; i < 8; ++i) hosts.core.on_timeout(hosts.core.rate());
  EXPECT_NEAR(hosts.core.rate(), kLine / 2, 1);
  hosts.carry(kLine, Duration(), 1);
  hosts.core.on_timeout(hosts.core.rate());
  EXPECT_NEAR(hosts.core.rate(), kLine / 4, 1) << "another one";
}

// What goes on below that, as a receiver that is silent now had granted less, stays there.
TEST(CcPaceLateHosts, ATimeoutRaisesNothing) {
  LateHosts hosts(kJitter);
  hosts.core.restart(0.001 * kLine);
  hosts.core.on_timeout(hosts.core.rate());
  EXPECT_LE(hosts.core.rate(), 0.001 * kLine);
}

}  // namespace
}  // namespace pacecar
