// The course of one flow under `pace`, from its CTS to its end.
#include <gtest/gtest.h>

#include "cc/pace/sender.h"
#include "tests/support/cc_script.h"
#include "tests/support/golden.h"

namespace pacecar::sender_golden_test {
namespace {

constexpr Bytes kMtu = 4096;

// One round trip: four acknowledgements of `packets` each.
void round_trip(test::CcScript& s, Bytes packets, Duration late = {}) {
  for (int i = 0; i < 4; ++i) {
    s.wait(Duration::from_us(2));
    const Duration rtt = Duration::from_us(8) + (i > 0 ? late : Duration());
    s.ack(i > 0 && late > Duration() ? "ack late" : "ack", packets, {.rtt = rtt});
  }
}

TEST(CcPaceGolden, FlowFromItsCtsToItsEnd) {
  const FlowEnvironment environment{.line_rate = Rate::from_gbps(400),
                                    .mtu = kMtu,
                                    .overhead = 64,
                                    .burst_bytes = 4 * kMtu,
                                    .base_rtt = Duration::from_us(8)};
  LinkShare link(environment, 1, PaceConstants{}.regrant);
  PaceController pace(environment, PaceConstants{}, link, 0);
  test::CcScript s(pace, kMtu);
  const Duration validity = Duration::from_us(50);
  s.grant(Rate::from_gbps(100), Duration(), validity, 1);
  s.note("begins with what the CTS grants, at once");
  s.wait(Duration::from_us(10)).demand({.backlog = 100'000'000});
  round_trip(s, 6);
  s.note("the receiver's own word: rate and phase");
  s.grant(Rate::from_gbps(50), Duration::from_ns(640), validity, 2, true);
  s.wait(Duration::from_us(1)).look();
  s.note("an older one, and a newer one");
  s.grant(Rate::from_gbps(70), Duration(), validity, 1, true);
  s.grant(Rate::from_gbps(200), Duration::from_ns(64), validity, 3, true);
  s.note("only the link limits");
  s.grant(Rate::from_gbps(400), Duration(), validity, 4, true);
  for (int i = 0; i < 4; ++i) round_trip(s, 24);
  s.note("most packets are late for several round trips, and then none");
  s.grant(Rate::from_gbps(400), Duration(), validity, 5, true);
  for (int i = 0; i < 5; ++i) round_trip(s, 24, Duration::from_us(7));
  s.timeout();
  s.grant(Rate::from_gbps(300), Duration(), validity, 6, true);
  for (int i = 0; i < 5; ++i) round_trip(s, 24);
  s.note("no word for longer than its validity; then a receiver that is only late");
  s.grant(Rate::from_gbps(100), Duration(), validity, 7, true);
  for (int i = 0; i < 16; ++i) round_trip(s, 6);
  s.grant(Rate::from_gbps(100), Duration(), validity, 8, true);
  s.note("nothing is left; a farewell when it is sure");
  s.wait(Duration::from_us(10)).demand({.backlog = 0, .acked = 100'000'000});
  s.wait(Duration::from_ms(2)).demand({.backlog = 0, .acked = 100'000'000});
  test::expect_golden("cc/pace.txt", s.text());
}

}  // namespace
}  // namespace pacecar::sender_golden_test
