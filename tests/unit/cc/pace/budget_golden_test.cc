// Course of the budget that one process learns for its link, while the rate of the link and its
// neighbors change.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>

#include "cc/pace/link_budget.h"
#include "tests/support/golden.h"

namespace pacecar::budget_golden_test {
namespace {

constexpr double kNominal = 1e9;
constexpr Bytes kPacket = 4200;
constexpr Duration kWindow = Duration::from_us(540);  // the law's: 16 packets at the nominal rate

// The state of the link and its users for some windows.
struct Spell {
  const char* what;
  int windows = 60;
  double link = kNominal;  // bit/s
  double used = 1;         // of the budget
  Duration late;           // added by the queue of others
  uint32_t flow = 0;
  int burst = 0;  // packets, with pauses as long as the bursts; 0: no pauses
};

class Course {
 public:
  explicit Course(LinkBudget& budget) : budget_(budget) { text_ = "  time_ms  rate_mbps\n"; }

  void run(const Spell& spell) {
    text_ += fmt::format("# {}\n", spell.what);
    const Instant end = now_ + kWindow * spell.windows;
    Instant shown = now_;
    while (now_ < end) {
      send(spell);
      if (now_ - shown < kWindow * 4) continue;
      shown = now_;
      text_ += fmt::format("{:>9.3f} {:>10.3f} {}{}{}\n", now_.ns() / 1e6, budget_.rate() / 1e6,
                           budget_.learnt() ? "learnt " : "", budget_.starting() ? "starting " : "",
                           budget_.unconcerned() ? "unconcerned" : "");
    }
  }
  void pause(Duration time) {
    text_ += fmt::format("# pause of {} ms\n", time.ns() / 1e6);
    now_ = now_ + time;
  }
  const std::string& text() const { return text_; }

 private:
  static Duration time_at(double rate) {
    return Duration::from_ns(static_cast<int64_t>(kPacket * 8e9 / rate));
  }

  // One packet: it queues behind the earlier ones.
  void send(const Spell& spell) {
    const double rate = budget_.rate() * spell.used;
    now_ = now_ + time_at(rate);
    ++sent_;
    if (spell.burst > 0 && sent_ % static_cast<uint32_t>(spell.burst) == 0) {
      now_ = now_ + time_at(rate) * spell.burst;
    }
    gone_at_ = std::max(gone_at_, now_) + time_at(spell.link);
    const Duration late = gone_at_ - now_ - time_at(spell.link) + spell.late;
    queue_.push_back({gone_at_, late, spell.flow});
    for (; !queue_.empty() && queue_.front().arrival <= now_; queue_.pop_front()) {
      const Packet& packet = queue_.front();
      budget_.on_bytes(packet.arrival, kPacket, packet.late, packet.flow);
    }
  }

  struct Packet {
    Instant arrival;
    Duration late;
    uint32_t flow;
  };

  LinkBudget& budget_;
  std::deque<Packet> queue_;
  Instant now_ = Instant::from_ns(1'000'000'000);
  Instant gone_at_;
  uint32_t sent_ = 0;
  std::string text_;
};

LinkBudgetConfig config(double first = 0) {
  return {.line = Rate::from_bps(static_cast<uint64_t>(kNominal)),
          .first = Rate::from_bps(static_cast<uint64_t>(first)),
          .packet = kPacket,
          .round_trip = Duration::from_us(100),
          .jitter = Duration::from_us(10),
          .base_memory = Duration::from_ms(400)};
}

TEST(CcPaceBudgetGolden, LinkSlowerThanNominal) {
  LinkBudget budget(config());
  Course course(budget);
  course.run({.what = "a link as fast as configured"});
  course.run({.what = "less than half of that", .windows = 120, .link = 0.4e9});
  course.run({.what = "twice as much", .windows = 120, .link = 0.8e9});
  course.pause(Duration::from_ms(20));
  course.run({.what = "half of the budget is used", .link = 0.8e9, .used = 0.5});
  course.run({.what = "in bursts", .windows = 120, .link = 0.8e9, .burst = 40});
  course.run({.what = "for long", .windows = 800, .link = 0.8e9});
  test::expect_golden("cc/pace_budget.txt", course.text());
}

TEST(CcPaceBudgetGolden, LinkSharedWithOthers) {
  LinkBudget budget(config());
  Course course(budget);
  course.run({.what = "half of the link is others'", .link = 0.5e9});
  course.run({.what = "who keep a small queue", .link = 0.5e9, .late = Duration::from_us(150)});
  course.run({.what = "a larger one", .link = 0.5e9, .late = Duration::from_us(400)});
  course.run(
      {.what = "one that stays", .windows = 200, .link = 0.5e9, .late = Duration::from_ms(3)});
  course.run({.what = "none", .windows = 100, .link = 0.5e9});
  budget.set_weight(2, 0.5);
  budget.set_patience(2);
  course.run({.what = "with twice the weight, and patience",
              .link = 0.5e9,
              .late = Duration::from_us(200)});
  budget.set_part(kNominal / 2);
  course.run({.what = "with a part of the link", .link = 0.6e9, .late = Duration::from_us(50)});
  budget.set_part(kNominal);
  course.run({.what = "of which little is used", .link = 0.7e9, .used = 0.3});
  test::expect_golden("cc/pace_budget_beside_others.txt", course.text());
}

TEST(CcPaceBudgetGolden, QueueThatOneFlowMeets) {
  LinkBudget budget(config());
  Course course(budget);
  course.run({.what = "a queue that one flow meets", .windows = 80, .link = 0.3e9});
  course.run({.what = "and another one does not", .windows = 80, .flow = 1});
  test::expect_golden("cc/pace_budget_flows.txt", course.text());
}

TEST(CcPaceBudgetGolden, LinkSharedWithGreaterWeight) {
  LinkBudget budget(config());
  budget.set_weight(8, 0.5);
  Course course(budget);
  course.run({.what = "half of the link is others'", .link = 0.5e9});
  course.run({.what = "who keep a small queue", .link = 0.5e9, .late = Duration::from_us(130)});
  course.run({.what = "and a smaller one", .link = 0.5e9, .late = Duration::from_us(90)});
  course.pause(Duration::from_ms(80));
  course.run({.what = "after a pause", .link = 0.5e9});
  test::expect_golden("cc/pace_budget_weight.txt", course.text());
}

TEST(CcPaceBudgetGolden, LinkOfUnknownRate) {
  LinkBudget budget(config(kNominal / 16));
  Course course(budget);
  course.run({.what = "it begins small", .windows = 100, .link = 0.6e9});
  course.run({.what = "and finds its rate", .windows = 200, .link = 0.6e9});
  course.run({.what = "then all of it is there", .windows = 200});
  test::expect_golden("cc/pace_budget_untold.txt", course.text());
}

}  // namespace
}  // namespace pacecar::budget_golden_test
