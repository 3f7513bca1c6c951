// CoreLimit: the delay that all packets of a round trip share may be that of the last hop, whose
// queue a receiver that times arrivals drains.
#include <gtest/gtest.h>

#include "cc/pace/core_limit.h"

namespace pacecar::shared_delay_test {
namespace {

constexpr double kLine = 400e9;
constexpr Duration kRoundTrip = Duration::from_us(8);
constexpr Bytes kMtu = 4096;
constexpr int kPackets = 40;  // per round trip
constexpr PaceConstants kConstants;

constexpr Duration us(int64_t count) { return Duration::from_us(count); }

class CcPaceSharedDelay : public ::testing::Test {
 protected:
  static FlowEnvironment environment(bool timed, Duration jitter = {}) {
    return {.line_rate = Rate::from_gbps(400),
            .mtu = kMtu,
            .overhead = 64,
            .burst_bytes = kMtu,
            .base_rtt = kRoundTrip,
            .jitter = jitter,
            .receivers_time_arrivals = timed};
  }
  // The rate after some round trips in which all packets were late by `shared`, and 7 of 10 by
  // `more`.
  static double after(const FlowEnvironment& environment, Duration shared, Duration more = {}) {
    CoreLimit core(environment, kConstants);
    Instant now = Instant::from_ns(1'000'000'000);
    Bytes sent = kPackets * kMtu;
    for (int i = 0; i < kPackets * 40; ++i) {
      const bool clear = i < kPackets * 20;
      const Duration delay = shared + (i % 10 < 7 ? more : Duration());
      now = now + kRoundTrip / kPackets;
      sent += kMtu;
      core.on_ack(now,
                  {.rtt = kRoundTrip + (clear ? Duration() : delay),
                   .acked = kMtu,
                   .in_flight = kPackets * kMtu,
                   .sent = sent},
                  core.rate());
    }
    return core.rate();
  }
};

TEST_F(CcPaceSharedDelay, SendersLeaveItToReceiversThatTimeArrivals) {
  EXPECT_GE(after(environment(true), us(6)), 0.95 * kLine);
  EXPECT_LT(after(environment(false), us(6)), 0.5 * kLine);
}

TEST_F(CcPaceSharedDelay, OnlyARoundTripOfItIsTheLastHops) {
  EXPECT_GE(after(environment(true), us(9)), 0.95 * kLine) << "1 us beyond is less than T";
  EXPECT_LT(after(environment(true), us(11)), 0.95 * kLine);
  EXPECT_LT(after(environment(true), us(100)), 0.5 * kLine);
}

// There a last hop's queue may be much longer than the round trip.
TEST_F(CcPaceSharedDelay, OnHostsWithJitterAllOfItIsTheLastHops) {
  EXPECT_GE(after(environment(true, us(10)), us(100)), 0.95 * kLine);
  EXPECT_LT(after(environment(false, us(10)), us(100)), 0.5 * kLine);
}

TEST_F(CcPaceSharedDelay, DelayBeyondItIsTheCores) {
  for (const Duration jitter : {us(0), us(10)}) {
    EXPECT_LT(after(environment(true, jitter), us(6), us(40)), 0.5 * kLine) << jitter.us();
  }
}

}  // namespace
}  // namespace pacecar::shared_delay_test
