// The log line about a stalled connection.
#include <gmock/gmock.h>

#include "transport/api/reports.h"

namespace pacecar::stall_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kOwn = "192.0.2.1:38140";
constexpr const char* kEnd = "send to 192.0.2.7:4791 over rxe0";

TEST(Stall, MissingReceiveBufferIsNoWarning) {
  const Stall stall{.lasted = Duration::from_s(5), .requests = 3, .awaits_peer = true};
  EXPECT_EQ(level_of(stall), LogLevel::kInfo);
  EXPECT_EQ(
      describe(stall, kEnd, kOwn),
      "send to 192.0.2.7:4791 over rxe0: nothing has moved for 5 s, 3 requests wait: the peer "
      "has not come to this message; if it does not compute, look there");
}

TEST(Stall, StalledConnectionsOfAFlowAreOneLine) {
  Stall stall;
  stall.add({.lasted = Duration::from_s(5), .connections = 1, .requests = 3, .writes = 2});
  stall.add({.lasted = Duration::from_s(3), .connections = 1, .requests = 4, .awaits_peer = true});
  EXPECT_EQ(level_of(stall), LogLevel::kWarn) << "one does not wait for the peer";
  EXPECT_THAT(describe(stall, kEnd, kOwn),
              HasSubstr("nothing has moved for 5 s on 2 connections, 7 requests wait, 2 writes"));
}

TEST(Stall, StalledWritesAreReportedWithTheFlowsLimit) {
  const Stall stall{.lasted = Duration::from_s(7),
                    .requests = 2,
                    .writes = 16,
                    .explanation = {.limited_by = LimitedBy::kGrant,
                                    .rate = Rate::from_bps(8'000'000),
                                    .grant = Rate::from_bps(16'000'000),
                                    .grant_age = Duration::from_ms(40)},
                    .rtt = Duration::from_us(7870)};
  EXPECT_EQ(level_of(stall), LogLevel::kWarn);
  EXPECT_THAT(
      describe(stall, kEnd, kOwn),
      AllOf(HasSubstr("rxe0: nothing has moved for 7 s, 2 requests wait, 16 writes"),
            HasSubstr("may send 0.008 Gb/s, limited by grant (grant 0.016 Gb/s, 40 ms old)"),
            HasSubstr("last round trip 7870 us")));
}

TEST(Stall, MissingGrantIsNotMentioned) {
  const Stall stall{.lasted = Duration::from_s(5), .requests = 1, .writes = 1};
  EXPECT_THAT(describe(stall, kEnd, kOwn),
              AllOf(Not(HasSubstr("grant ")), Not(HasSubstr("round trip"))));
}

TEST(Stall, SilenceOfThePeersNicIsAWarningWithBothAddresses) {
  const Stall stall{.lasted = Duration::from_s(3),
                    .requests = 1,
                    .awaits_peer = true,
                    .silence = Duration::from_ms(2990),
                    .peer_address = "192.0.2.7:58378"};
  EXPECT_EQ(level_of(stall), LogLevel::kWarn);
  EXPECT_THAT(describe(stall, kEnd, kOwn),
              AllOf(HasSubstr("no answer comes from 192.0.2.7:58378 to 192.0.2.1:38140"),
                    HasSubstr("firewall")));
}

}  // namespace
}  // namespace pacecar::stall_test
