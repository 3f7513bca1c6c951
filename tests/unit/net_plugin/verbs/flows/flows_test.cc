// The rates of programs' own queue pairs.
#include "net_plugin/verbs/flows.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/support/passing_nic.h"
#include "tests/support/soft_nic_pair.h"

namespace pacecar::test::flows_test {
namespace {

using ibverbs::Flows;

// Reports the signal of the test, and keeps the limits that it gets.
class SignallingNic final : public PassingNic {
 public:
  using PassingNic::PassingNic;

  size_t poll_signals(std::span<FlowSignal> signals) override {
    if (!due || signals.empty()) return 0;
    signals[0] = signal;
    due = false;
    return 1;
  }
  void set_flow_limits(FlowId flow, const FlowLimits& given, Instant /*now*/) override {
    limits[flow] = given;
  }

  FlowSignal signal;
  bool due = false;
  std::map<FlowId, FlowLimits> limits;
};

// A program may post much at once and then wait long on a slow link.
TEST(VerbsDeviceFlows, FlowKeepsItsRateLongAfterTheLastPost) {
  for (const std::string cc : {"pace", "swift", "dcqcn"}) {
    SoftNicPair pair;
    SignallingNic nic(pair.nic(0), pair.nic(0).caps());
    Params params;
    params.cc = cc;
    auto flows = Flows::make(params, nic, Rate(), nullptr);
    ASSERT_TRUE(flows) << flows.error().message;
    Instant now = Instant::from_ns(1'000'000'000);
    const auto flow = (*flows)->join({}, now);
    ASSERT_TRUE(flow);
    (*flows)->on_posted(*flow, Bytes{1} << 40);
    Rate settled;
    const Bytes each = 16 * nic.caps().mtu;
    for (int i = 0; i < 1000; ++i) {
      now = now + Duration::from_ms(30);
      nic.signal.flow = *flow;
      nic.signal.rtt = Duration::from_us(20);
      nic.signal.acked = each;
      nic.signal.in_flight = each;
      nic.signal.sent += each;
      nic.due = true;
      (*flows)->poll(now);
      if (i == 100) settled = nic.limits[*flow].rate;
      ASSERT_GE(nic.limits[*flow].rate.bps(), settled.bps() * 3 / 4) << cc << ", " << i;
    }
  }
}

TEST(VerbsDeviceFlows, CreditOfTheReceiverIsRefused) {
  for (const std::string cc : {"rccc", "sird"}) {
    SoftNicPair pair;
    Params params;
    params.cc = cc;
    const auto flows = Flows::make(params, pair.nic(0), Rate(), nullptr);
    ASSERT_FALSE(flows) << cc;
    EXPECT_EQ(flows.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(flows.error().message.substr(0, 28), "PACECAR_CC=" + cc + " needs credit");
  }
}

// A program may reset a queue pair, or lose its peer, with much outstanding; the flow lives on with
// its other queue pairs.
TEST(VerbsDeviceFlows, WhatAQueuePairLeavesDoesNotSlowOtherFlows) {
  SoftNicPair pair;
  SignallingNic nic(pair.nic(0), pair.nic(0).caps());
  auto flows = Flows::make({}, nic, Rate(), nullptr);
  ASSERT_TRUE(flows) << flows.error().message;
  Instant now = Instant::from_ns(1'000'000'000);
  const auto left = (*flows)->join({1}, now);
  const auto other = (*flows)->join({2}, now);
  (*flows)->join({1}, now).value();
  (*flows)->on_posted(*other, Bytes{1} << 40);
  const auto limit = [&] {
    nic.signal = {.flow = *other, .rtt = Duration::from_us(20), .acked = Bytes{1} << 20};
    nic.due = true;
    now = now + Duration::from_ms(1);
    (*flows)->poll(now);
    return nic.limits[*other].rate;
  };
  for (int i = 0; i < 10; ++i) limit();
  const Rate alone = limit();
  (*flows)->on_posted(*left, Bytes{1} << 30);
  for (int i = 0; i < 10; ++i) limit();
  EXPECT_LT(limit().bps(), alone.bps() * 3 / 4) << "two flows share the link";
  (*flows)->leave(*left, now);
  nic.signal = {.flow = *left, .dropped = Bytes{1} << 30};
  nic.due = true;
  (*flows)->poll(now);
  for (int i = 0; i < 10; ++i) limit();
  EXPECT_GE(limit().bps(), alone.bps() * 9 / 10);
}

}  // namespace
}  // namespace pacecar::test::flows_test
