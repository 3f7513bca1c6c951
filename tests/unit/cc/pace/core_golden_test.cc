// Course of the core limit of one flow, while its paths fill, lose, trim and mark packets, and
// become longer.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "cc/pace/core_limit.h"
#include "tests/support/golden.h"

namespace pacecar::core_golden_test {
namespace {

constexpr Bytes kMtu = 4096;
constexpr PaceConstants kConstants;

// The state of the paths for some round trips.
struct Spell {
  const char* what;
  int round_trips = 8;
  int late_of_ten = 0;
  Duration late;
  int marked_of_ten = 0;
  int lost_of_hundred = 0;
  int trimmed_of_hundred = 0;
  bool rerouting = false;
  double used = 1;  // of the limit
  Duration longer;  // than the base round trip, for all packets
};

class Course {
 public:
  explicit Course(const FlowEnvironment& environment)
      : environment_(environment), core_(environment, kConstants) {
    text_ = "   time_us  rate_mbps  base_ns\n";
    show();
  }

  CoreLimit& core() { return core_; }
  Instant now() const { return now_; }
  void note(const char* what) {
    text_ += fmt::format("# {}\n", what);
    show();
  }
  void pause(Duration time) { now_ = now_ + time; }

  void run(const Spell& spell) {
    note(spell.what);
    const Instant end = now_ + environment_.base_rtt * spell.round_trips;
    while (now_ < end) packet(spell);
  }
  const std::string& text() const { return text_; }

 private:
  void packet(const Spell& spell) {
    const double rate = core_.rate() * spell.used;
    now_ = now_ + Duration::from_ns(static_cast<int64_t>(kMtu * 8e9 / rate));
    const Bytes in_flight =
        static_cast<Bytes>(rate / 8 * environment_.base_rtt.seconds()) / kMtu * kMtu;
    acked_ += kMtu;
    ++number_;
    const int of_ten = number_ * 7 % 10;
    const int of_hundred = number_ * 37 % 100;
    const Bytes sent = acked_ + in_flight;
    if (of_hundred < spell.lost_of_hundred) lose(LossKind::kMissing, sent, spell);
    if (of_hundred < spell.trimmed_of_hundred) lose(LossKind::kTrimmed, sent, spell);
    Duration rtt = environment_.base_rtt + spell.longer;
    if (of_ten < spell.late_of_ten) rtt = rtt + spell.late + spell.late * (number_ % 4) / 8;
    const double before = core_.rate();
    const bool changed = core_.on_ack(now_,
                                      {.rtt = rtt,
                                       .acked = kMtu,
                                       .in_flight = in_flight,
                                       .sent = sent,
                                       .rerouting = spell.rerouting,
                                       .echo_marked = of_ten < spell.marked_of_ten},
                                      rate);
    compare(changed, before);
  }
  void lose(LossKind kind, Bytes sent, const Spell& spell) {
    const double before = core_.rate();
    const bool changed = core_.on_loss(now_, {.kind = kind,
                                              .lost = kMtu,
                                              .in_flight = sent - acked_,
                                              .sent = sent,
                                              .rerouting = spell.rerouting});
    compare(changed, before);
  }
  void compare(bool changed, double before) {
    EXPECT_EQ(changed, core_.rate() != before)
        << "on_ack and on_loss return whether the rate changed, at " << now_.ns();
    if (changed || core_.base_rtt() != shown_base_) show();
  }
  void show() {
    shown_base_ = core_.base_rtt();
    text_ += fmt::format("{:>10.2f} {:>10.3f} {:>8}{}\n", static_cast<double>(now_.ns()) / 1e3,
                         core_.rate() / 1e6, shown_base_.ns(), core_.clear() ? " clear" : "");
  }

  const FlowEnvironment environment_;
  CoreLimit core_;
  Instant now_;
  Bytes acked_ = 0;
  int number_ = 0;
  Duration shown_base_;
  std::string text_;
};

FlowEnvironment fabric(Duration jitter = {}) {
  return {.line_rate = Rate::from_gbps(400),
          .mtu = kMtu,
          .overhead = 64,
          .burst_bytes = kMtu,
          .base_rtt = Duration::from_us(8),
          .jitter = jitter,
          .receivers_time_arrivals = true};
}

TEST(CcPaceCoreGolden, PathsThatFillAndEmpty) {
  std::string text;
  for (const bool last_hop_seen : {true, false}) {
    FlowEnvironment environment = fabric();
    environment.receivers_time_arrivals = last_hop_seen;
    Course course(environment);
    course.run({.what = "empty"});
    course.run({.what = "a few packets are late", .late_of_ten = 3, .late = Duration::from_us(5)});
    course.run({.what = "by much", .late_of_ten = 4, .late = Duration::from_us(11)});
    course.run({.what = "most are", .late_of_ten = 7, .late = Duration::from_us(5)});
    course.run({.what = "by little", .late_of_ten = 7, .late = Duration::from_us(2)});
    course.run({.what = "all are", .late_of_ten = 10, .late = Duration::from_us(5)});
    course.run(
        {.what = "by much", .round_trips = 40, .late_of_ten = 10, .late = Duration::from_us(60)});
    course.run({.what = "none", .round_trips = 30});
    course.run({.what = "most are marked",
                .late_of_ten = 7,
                .late = Duration::from_ns(1700),
                .marked_of_ten = 7});
    course.run({.what = "half of the limit is used",
                .round_trips = 16,
                .late_of_ten = 6,
                .late = Duration::from_us(4),
                .used = 0.5});
    text += course.text();
  }
  test::expect_golden("cc/pace_core.txt", text);
}

// A packet may be behind bursts of others although no queue stands.
TEST(CcPaceCoreGolden, NicsThatSendInBursts) {
  FlowEnvironment environment = fabric();
  environment.burst_bytes = 16 * kMtu;
  Course course(environment);
  course.run({.what = "a few of them", .late_of_ten = 7, .late = Duration::from_us(5)});
  course.run({.what = "more", .late_of_ten = 7, .late = Duration::from_us(9)});
  test::expect_golden("cc/pace_core_bursts.txt", course.text());
}

TEST(CcPaceCoreGolden, PathsThatLose) {
  Course course(fabric());
  course.run({.what = "as a cable does", .lost_of_hundred = 4});
  course.run({.what = "more than that", .lost_of_hundred = 12});
  course.run({.what = "while the NIC looks for others",
              .round_trips = 24,
              .lost_of_hundred = 12,
              .rerouting = true});
  course.run({.what = "while little is sent", .lost_of_hundred = 12, .used = 0.4});
  course.run({.what = "and less", .lost_of_hundred = 30, .used = 0.2});
  course.run({.what = "none", .round_trips = 20});
  course.core().on_timeout(course.core().rate());
  course.note("a timeout");
  course.run({.what = "none"});
  test::expect_golden("cc/pace_core_losses.txt", course.text());
}

TEST(CcPaceCoreGolden, SwitchesThatTrim) {
  std::string text;
  for (const Bytes burst : {1, 16}) {
    FlowEnvironment environment = fabric();
    environment.burst_bytes = burst * kMtu;
    Course course(environment);
    course.run({.what = "few packets", .trimmed_of_hundred = 4});
    course.run({.what = "more", .trimmed_of_hundred = 30});
    course.run({.what = "nearly all", .trimmed_of_hundred = 90});
    course.run({.what = "none", .round_trips = 20});
    course.run({.what = "some, now and then", .trimmed_of_hundred = 12, .used = 0.1});
    text += course.text();
  }
  test::expect_golden("cc/pace_core_trims.txt", text);
}

TEST(CcPaceCoreGolden, HostsWithJitter) {
  Course course(fabric(Duration::from_us(10)));
  course.run({.what = "never so far"});
  course.run({.what = "now and then", .late_of_ten = 4, .late = Duration::from_us(12)});
  course.run({.what = "as a queue makes them",
              .round_trips = 30,
              .late_of_ten = 8,
              .late = Duration::from_us(40)});
  course.run(
      {.what = "all of them", .round_trips = 20, .late_of_ten = 10, .late = Duration::from_us(24)});
  course.run({.what = "while next to nothing is sent",
              .round_trips = 300,
              .late_of_ten = 8,
              .late = Duration::from_us(40),
              .used = 0.02});
  course.run({.what = "no more", .round_trips = 20});
  test::expect_golden("cc/pace_core_late_hosts.txt", course.text());
}

TEST(CcPaceCoreGolden, PathsThatBecomeLonger) {
  Course course(fabric());
  course.run({.what = "as short as they are"});
  for (int i = 0; i < 4; ++i) {
    course.run({.what = "longer",
                .round_trips = 4,
                .late_of_ten = 3,
                .late = Duration::from_us(2),
                .longer = Duration::from_us(12 - i)});
    course.pause(Duration::from_ms(700));
  }
  course.run({.what = "and longer",
              .round_trips = 20,
              .late_of_ten = 7,
              .late = Duration::from_us(6),
              .longer = Duration::from_us(12)});
  course.run({.what = "shorter than configured", .longer = Duration::from_us(-2)});
  test::expect_golden("cc/pace_core_longer_paths.txt", course.text());
}

}  // namespace
}  // namespace pacecar::core_golden_test
