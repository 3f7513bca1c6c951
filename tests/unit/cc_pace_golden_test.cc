// The course of one flow under `pace`, from its CTS to its end.
#include <gtest/gtest.h>

#include "cc/pace/sender.h"
#include "tests/support/cc_script.h"
#include "tests/support/golden.h"

namespace pacecar {
namespace {

constexpr Bytes kMtu = 4096;

AckSample at(int64_t rtt_us) {
  AckSample sample{.now = {}, .rtt = Duration::from_us(rtt_us)};
  return sample;
}

TEST(CcPaceGolden, FromCtsToFarewell) {
  PaceController pace({.line_rate = Rate::from_gbps(400),
                       .mtu = kMtu,
                       .overhead = 64,
                       .burst_bytes = 4 * kMtu,
                       .base_rtt = Duration::from_us(8)},
                      PaceConstants{});
  testing::CcScript s(pace, kMtu);
  const Duration validity = Duration::from_us(50);
  s.grant(Rate::from_gbps(100), Duration(), validity, 1);
  s.note("begins with what the CTS grants, at once");
  s.wait(Duration::from_us(10)).demand({.backlog = 100'000'000});
  s.wait(Duration::from_us(8)).ack("ack 8 us", 24, at(8));
  s.note("the receiver's own word: rate and phase");
  s.grant(Rate::from_gbps(50), Duration::from_ns(640), validity, 2, true);
  s.wait(Duration::from_us(1)).look();
  s.note("an older one, and a newer one");
  s.grant(Rate::from_gbps(70), Duration(), validity, 1, true);
  s.grant(Rate::from_gbps(200), Duration::from_ns(64), validity, 3, true);
  s.note("the network alone limits");
  s.grant(Rate::from_gbps(400), Duration(), validity, 4, true);
  for (int i = 0; i < 8; ++i) s.wait(Duration::from_us(8)).ack("ack 8 us", 40, at(8));
  s.grant(Rate::from_gbps(400), Duration(), validity, 5, true);
  for (int i = 0; i < 4; ++i) {
    for (int late = 0; late < 8; ++late) {
      s.wait(Duration::from_us(1));
      s.ack("ack", 2, at(late < 2 ? 8 : 15));
    }
  }
  s.timeout();
  s.note("no word for longer than its validity; then a receiver that is only late");
  s.grant(Rate::from_gbps(100), Duration(), validity, 6, true);
  for (int i = 0; i < 16; ++i) s.wait(Duration::from_us(8)).ack("ack 8 us", 12, at(8));
  s.grant(Rate::from_gbps(100), Duration(), validity, 7, true);
  s.note("nothing is left; a farewell when it is sure");
  s.wait(Duration::from_us(10)).demand({.backlog = 0, .acked = 100'000'000});
  s.wait(Duration::from_ms(2)).demand({.backlog = 0, .acked = 100'000'000});
  testing::expect_golden("cc/pace.txt", s.text());
}

}  // namespace
}  // namespace pacecar
