// What mnscc does otherwise than nscc: it reacts to the median of the newest delays. Figures as in
// nscc_test.cc; the target is 6.25 us.
#include <gtest/gtest.h>

#include <vector>

#include "cc/nscc.h"
#include "tests/support/cc_script.h"
#include "tests/support/golden.h"

namespace pacecar::mnscc_test {
namespace {

constexpr Bytes kMtu = 4086;
constexpr double kPacket = 4150;
constexpr int64_t kBaseNs = 8337;
constexpr double kWeight = 0.0125;  // of a sample in the average
const FlowEnvironment kFabric{.line_rate = Rate::from_gbps(400),
                              .mtu = kMtu,
                              .overhead = 64,
                              .burst_bytes = kMtu,
                              .base_rtt = Duration::from_ns(kBaseNs),
                              .trimming = true};

class CcMnscc : public ::testing::Test {
 protected:
  // Marked acknowledgements of nothing: only the delays count.
  void delays(const std::vector<int64_t>& delays_ns) {
    for (const int64_t delay : delays_ns) ack(mnscc_, delay);
  }
  void ack(NsccController& controller, int64_t delay_ns) {
    now_ = now_ + Duration::from_us(20);  // a decrease is allowed
    FlowSignal sample{.rtt = Duration::from_ns(kBaseNs + delay_ns), .in_flight = 10 * kMtu};
    sample.echo_marked = true;
    controller.on_ack(now_, sample);
  }
  // The delay as which an acknowledgement enters the average, computed from the average's change.
  double counted(int64_t delay_ns) {
    const double before = mnscc_.average_delay_ns();
    ack(mnscc_, delay_ns);
    return before + (mnscc_.average_delay_ns() - before) / kWeight;
  }
  void shrink_to(Bytes packets) {
    const auto now_packets = static_cast<Bytes>(mnscc_.window() / kPacket);
    mnscc_.on_loss(now_, {.kind = LossKind::kMissing, .lost = (now_packets - packets) * kMtu});
    ASSERT_NEAR(mnscc_.window() / kPacket, static_cast<double>(packets), 1);
  }

  MnsccController mnscc_{kFabric};
  Instant now_ = Instant::from_ns(1'000'000'000);
};

TEST_F(CcMnscc, MedianOfTheLastFourDelaysCounts) {
  EXPECT_NEAR(counted(1000), 1000, 1e-6);
  EXPECT_NEAR(counted(9000), 5000, 1e-6) << "of two, the mean";
  EXPECT_NEAR(counted(2000), 2000, 1e-6);
  EXPECT_NEAR(counted(8000), 5000, 1e-6);
  EXPECT_NEAR(counted(3000), 5500, 1e-6) << "1000 is the fifth, and forgotten";
  EXPECT_NEAR(counted(0), 2500, 1e-6);
}

TEST_F(CcMnscc, FewerDelaysCountWhereTheWindowIsSmall) {
  delays({1000, 2000, 6000, 4000});
  shrink_to(7);
  EXPECT_NEAR(counted(5000), 5000, 1e-6) << "6000, 4000, 5000";
  shrink_to(5);
  EXPECT_NEAR(counted(1000), 3000, 1e-6) << "5000 and 1000";
  shrink_to(3);
  EXPECT_NEAR(counted(2000), 2000, 1e-6) << "the newest alone";
  shrink_to(1);
  EXPECT_NEAR(counted(3000), 3000, 1e-6);
}

TEST_F(CcMnscc, OneLateDelayAmongShortOnesDoesNotCutTheWindow) {
  NsccController nscc{kFabric};
  for (NsccController* controller : {static_cast<NsccController*>(&mnscc_), &nscc}) {
    for (int i = 0; i < 40; ++i) ack(*controller, 20'000);
    for (int i = 0; i < 3; ++i) ack(*controller, 0);
    ASSERT_GT(controller->average_delay_ns(), controller->target_delay_ns());
    const double before = controller->window();
    ack(*controller, 20'000);
    if (controller == &nscc) {
      EXPECT_LT(controller->window(), before);
    } else {
      EXPECT_GE(controller->window(), before);
    }
  }
  const double before = mnscc_.window();
  ack(mnscc_, 20'000);
  EXPECT_LT(mnscc_.window(), before) << "two of four: their mean is late";
}

TEST_F(CcMnscc, AckWithoutARoundTripIsNoDelay) {
  delays({1000, 2000, 3000, 4000});
  mnscc_.on_ack(now_, {.in_flight = kMtu});
  EXPECT_NEAR(counted(5000), 3500, 1e-6);
}

TEST(CcMnsccTrace, Course) {
  MnsccController mnscc(kFabric);
  test::CcScript s(mnscc, kMtu);
  const auto words = [&](const std::vector<int64_t>& delays_us, bool marked) {
    for (const int64_t delay : delays_us) {
      FlowSignal sample{.rtt = Duration::from_ns(kBaseNs + delay * 1000)};
      sample.echo_marked = marked;
      s.wait(Duration::from_us(1))
          .ack(fmt::format("delay={}us{}", delay, marked ? " mark" : ""), 4, sample);
    }
  };
  s.note("a burst: little arrives, quick adapt");
  words({4, 4, 4}, true);
  s.wait(Duration::from_us(12)).trim().wait(Duration::from_us(1)).trim();
  words({1, 1, 1, 1, 1, 1, 1, 1}, false);
  s.note("one path of four is congested");
  words({1, 1, 1, 20, 1, 1, 1, 20, 1, 1, 1, 20}, false);
  s.note("three of four are");
  for (int i = 0; i < 15; ++i) words({20, 1, 20, 20}, true);
  test::expect_golden("cc/mnscc.txt", s.text());
}

}  // namespace
}  // namespace pacecar::mnscc_test
