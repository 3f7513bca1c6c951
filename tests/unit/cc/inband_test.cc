// The algorithms that read the switches' telemetry: hpcc and powertcp.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include "cc/hpcc.h"
#include "cc/powertcp.h"
#include "tests/support/cc_script.h"
#include "tests/support/golden.h"
#include "tests/support/scripted_port.h"

namespace pacecar::inband_test {
namespace {

constexpr Bytes kMtu = 1000;
constexpr Rate kLine = Rate::from_gbps(25);
// 31,250 bytes of wire, 28,409 of payload in flight.
const FlowEnvironment kFlow{.line_rate = kLine,
                            .mtu = kMtu,
                            .overhead = 100,
                            .burst_bytes = kMtu,
                            .base_rtt = Duration::from_us(10)};

// Acknowledgements with the telemetry of one port: its utilization since the previous one, its
// queue.
class Path {
 public:
  Path(Controller& controller, test::CcScript& script) : controller_(controller), script_(script) {}

  void ack(int64_t us, uint64_t percent, uint32_t queue, Bytes packets) {
    script_.wait(Duration::from_us(us));
    script_.ack(fmt::format("busy={}% q={} n={}", percent, queue, packets), packets,
                {.rtt = Duration::from_us(10),
                 .hops = 1,
                 .telemetry = {port_.after(Duration::from_us(us), percent, queue)}});
  }
  double gbps() { return controller_.decide(Instant()).rate.gbps(); }

 private:
  Controller& controller_;
  test::CcScript& script_;
  test::ScriptedPort port_{kLine};
};

TEST(CcHpcc, KeepsTheBytesInFlightBelowTheProduct) {
  HpccController hpcc(kFlow);
  test::CcScript s(hpcc, kMtu);
  Path path(hpcc, s);
  s.note("the first acknowledgement is only remembered");
  path.ack(10, 100, 31'250, 11);
  s.note("a full link with a queue of one product: half the rate; for good once per round");
  s.note("trip, in between always from the same reference");
  path.ack(10, 100, 31'250, 11);
  path.ack(2, 100, 31'250, 1);
  path.ack(2, 100, 31'250, 1);
  path.ack(10, 100, 31'250, 11);
  s.note("of two queue lengths the smaller counts: this one has just gone");
  path.ack(10, 80, 0, 11);
  s.note("below the target: five additive increases, then a multiplicative one");
  for (int i = 0; i < 7; ++i) path.ack(10, 80, 0, 11);
  s.note("losses and timeouts change nothing, nor does an acknowledgement without telemetry");
  s.loss().timeout().ack("no telemetry", 11, {});
  s.note("idle: up to the line rate");
  for (int i = 0; i < 3; ++i) path.ack(10, 0, 0, 11);
  for (int i = 0; i < 6; ++i) path.ack(10, 1, 0, 11);
  test::expect_golden("cc/hpcc.txt", s.text());
}

TEST(CcPowerTcp, HoldsThePowerOfAFullLinkWithoutAQueue) {
  PowerTcpController powertcp(kFlow);
  test::CcScript s(powertcp, kMtu);
  Path path(powertcp, s);
  s.note("what the first acknowledgement finds counts as grown in one round trip");
  path.ack(10, 100, 31'250, 11);
  s.note("a standing queue of one product: twice the power of a full link");
  path.ack(10, 100, 31'250, 11);
  path.ack(2, 100, 31'250, 1);
  s.note("the same queue while it grows, and while it shrinks");
  path.ack(10, 100, 62'500, 11);
  path.ack(10, 100, 31'250, 11);
  path.ack(10, 100, 0, 11);
  s.note("a link that is hardly used counts as half used");
  for (int i = 0; i < 3; ++i) path.ack(10, 80, 0, 11);
  for (int i = 0; i < 4; ++i) path.ack(10, 1, 0, 11);
  s.note("losses and timeouts change nothing, nor does an acknowledgement without telemetry");
  s.loss().timeout().ack("no telemetry", 11, {});
  test::expect_golden("cc/powertcp.txt", s.text());
}

// --- InbandSignal, which both use ---

double any_load(const HopChange& hop) { return hop.sent_bps / hop.line_bps; }

std::array<TelemetryHop, 2> hops(uint32_t ns, uint32_t first_sent, uint32_t second_sent) {
  return {{{.time_ns = ns, .sent_bytes = first_sent, .rate_mbps = 8000},
           {.time_ns = ns, .sent_bytes = second_sent, .rate_mbps = 16'000}}};
}

TEST(CcInbandSignal, MostLoadedHopCountsByItsMeasuredTime) {
  InbandSignal signal(Duration::from_us(10));
  EXPECT_TRUE(signal.empty());
  EXPECT_FALSE(signal.update(hops(0, 0, 0), any_load)) << "no earlier telemetry";
  EXPECT_EQ(signal.load(), 1);
  // 8 Gb/s are one byte per nanosecond.
  EXPECT_TRUE(signal.update(hops(10'000, 5000, 12'000), any_load));
  EXPECT_DOUBLE_EQ(signal.load(), 0.6) << "a whole round trip replaces the old load";
  EXPECT_TRUE(signal.update(hops(12'000, 6600, 13'000), any_load));
  EXPECT_DOUBLE_EQ(signal.load(), 0.6 + 0.2 * (0.8 - 0.6))
      << "a fifth of a round trip moves the load by a fifth of the difference";
}

TEST(CcInbandSignal, AssumedFullLinksHaveALoadOfOne) {
  InbandSignal signal(Duration::from_us(10));
  const auto now = hops(20'000, 30'000, 60'000);
  signal.assume_full_links_before(now);
  EXPECT_FALSE(signal.empty());
  double least = 1e9;
  EXPECT_TRUE(signal.update(now, [&](const HopChange& hop) {
    least = std::min(least, any_load(hop));
    return any_load(hop);
  }));
  EXPECT_DOUBLE_EQ(least, 1);
  EXPECT_DOUBLE_EQ(signal.load(), 1);
}

TEST(CcInbandSignal, OutdatedOrImpossibleTelemetryIsIgnored) {
  InbandSignal signal(Duration::from_us(10));
  signal.update(hops(10'000, 10'000, 10'000), any_load);
  EXPECT_FALSE(signal.update(hops(10'000, 10'000, 10'000), any_load)) << "no time has passed";
  EXPECT_FALSE(signal.update(hops(9000, 12'000, 12'000), any_load)) << "out of order";
  EXPECT_FALSE(signal.update(hops(10'000, 20'000, 20'000), any_load))
      << "eight times the line rate";
  InbandSignal other(Duration::from_us(10));
  other.update(hops(0, 0, 0), any_load);
  EXPECT_FALSE(other.update(hops(1000, 2500, 5000), any_load))
      << "two and a half times the line rate";
  const auto shorter = hops(20'000, 20'000, 20'000);
  EXPECT_FALSE(signal.update(std::span(shorter).first(1), any_load)) << "another number of hops";
  EXPECT_EQ(signal.load(), 1);
  std::array<TelemetryHop, 2 * kMaxTelemetryHops> longest{};
  EXPECT_FALSE(signal.update(longest, any_load)) << "line rates of 0, and too many hops";
  EXPECT_FALSE(signal.update({}, any_load));
}

}  // namespace
}  // namespace pacecar::inband_test
