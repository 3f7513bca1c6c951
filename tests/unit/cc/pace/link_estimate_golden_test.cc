// Course of the estimate that one process learns of its link, while the rate of the link and its
// neighbours change.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>

#include "tests/support/golden.h"
#include "tests/unit/cc/pace/covered_estimate.h"

namespace pacecar::link_estimate_golden_test {
namespace {

using test::CoveredEstimate;
using test::kNominal;
using test::kWindow;
using test::slow_link;

// The state of the link and its users for some windows.
struct Spell {
  const char* what;
  int windows = 60;
  double link = kNominal;    // bit/s
  double used = 1;           // of the estimate
  double usable = kNominal;  // by the senders
  Duration late;             // added by the queue of others
  uint32_t flow = 0;
  int burst = 0;  // packets, with pauses as long as the bursts; 0: no pauses
};

class Course {
 public:
  explicit Course(CoveredEstimate& estimate) : estimate_(estimate) {
    text_ = "  time_ms  rate_mbps  available_mbps\n";
  }

  void weigh(double weight) { weight_ = weight; }
  void run(const Spell& spell) {
    text_ += fmt::format("# {}\n", spell.what);
    const Instant end = now_ + kWindow * spell.windows;
    Instant shown = now_;
    while (now_ < end) {
      send(spell);
      if (now_ - shown < kWindow * 4) continue;
      shown = now_;
      text_ +=
          fmt::format("{:>9.3f} {:>10.3f} {:>15.3f}{}\n", now_.ns() / 1e6, estimate_.rate() / 1e6,
                      estimate_.link().available(2) / 1e6, estimate_.learnt() ? " learnt" : "");
    }
  }
  void pause(Duration time) {
    text_ += fmt::format("# pause of {} ms\n", time.ns() / 1e6);
    now_ = now_ + time;
  }
  const std::string& text() const { return text_; }

 private:
  // One packet: it queues behind the earlier ones.
  void send(const Spell& spell) {
    estimate_.link().set_use(spell.usable, weight_);
    const double rate = estimate_.rate() * spell.used;
    now_ = now_ + estimate_.time_at(rate);
    ++sent_;
    if (spell.burst > 0 && sent_ % static_cast<uint32_t>(spell.burst) == 0) {
      now_ = now_ + estimate_.time_at(rate) * spell.burst;
    }
    gone_at_ = std::max(gone_at_, now_) + estimate_.time_at(spell.link);
    const Duration late = gone_at_ - now_ - estimate_.time_at(spell.link) + spell.late;
    queue_.push_back({gone_at_, late, spell.flow});
    for (; !queue_.empty() && queue_.front().arrival <= now_; queue_.pop_front()) {
      const Packet& packet = queue_.front();
      estimate_.on_packet(packet.arrival, packet.late, packet.flow);
    }
  }

  struct Packet {
    Instant arrival;
    Duration late;
    uint32_t flow;
  };

  CoveredEstimate& estimate_;
  double weight_ = 1;
  std::deque<Packet> queue_;
  Instant now_ = Instant::from_ns(1'000'000'000);
  Instant gone_at_;
  uint32_t sent_ = 0;
  std::string text_;
};

TEST(CcPaceLinkEstimateGolden, LinkSlowerThanNominal) {
  CoveredEstimate estimate;
  Course course(estimate);
  course.run({.what = "a link as fast as configured"});
  course.run({.what = "less than half of that", .windows = 120, .link = 0.4e9});
  course.run({.what = "twice as much", .windows = 120, .link = 0.8e9});
  course.pause(Duration::from_ms(20));
  course.run({.what = "half of the estimate is used", .link = 0.8e9, .used = 0.5});
  course.run({.what = "in bursts", .windows = 120, .link = 0.8e9, .burst = 40});
  course.run({.what = "for long", .windows = 800, .link = 0.8e9});
  test::expect_golden("cc/pace_link_estimate.txt", course.text());
}

TEST(CcPaceLinkEstimateGolden, LinkSharedWithOthers) {
  CoveredEstimate estimate;
  Course course(estimate);
  course.run({.what = "half of the link is others'", .link = 0.5e9});
  course.run({.what = "who keep a small queue", .link = 0.5e9, .late = Duration::from_us(150)});
  course.run({.what = "a larger one", .link = 0.5e9, .late = Duration::from_us(400)});
  course.run(
      {.what = "one that stays", .windows = 200, .link = 0.5e9, .late = Duration::from_ms(3)});
  course.run({.what = "none", .windows = 100, .link = 0.5e9});
  course.run({.what = "senders that can use less",
              .link = 0.4e9,
              .usable = 0.4e9,
              .late = Duration::from_us(300)});
  course.run({.what = "with a longer queue",
              .link = 0.3e9,
              .usable = 0.4e9,
              .late = Duration::from_ms(2)});
  estimate.set_part(kNominal / 2);
  course.run({.what = "with a part of the link", .link = 0.6e9, .late = Duration::from_us(50)});
  estimate.set_part(kNominal);
  course.run({.what = "of which little is used", .link = 0.7e9, .used = 0.3, .usable = 0.2e9});
  test::expect_golden("cc/pace_link_estimate_beside_others.txt", course.text());
}

TEST(CcPaceLinkEstimateGolden, QueueThatOneFlowMeets) {
  CoveredEstimate estimate;
  Course course(estimate);
  course.run({.what = "a queue that one flow meets", .windows = 80, .link = 0.3e9});
  course.run({.what = "and another one does not", .windows = 80, .flow = 1});
  test::expect_golden("cc/pace_link_estimate_flows.txt", course.text());
}

TEST(CcPaceLinkEstimateGolden, LinkSharedWithGreaterWeight) {
  CoveredEstimate estimate;
  Course course(estimate);
  course.weigh(4);
  course.run({.what = "half of the link is others'", .link = 0.5e9});
  course.run({.what = "who keep a small queue", .link = 0.5e9, .late = Duration::from_us(130)});
  course.run({.what = "and a smaller one", .link = 0.5e9, .late = Duration::from_us(90)});
  course.pause(Duration::from_ms(80));
  course.run({.what = "after a pause", .link = 0.5e9});
  test::expect_golden("cc/pace_link_estimate_weight.txt", course.text());
}

TEST(CcPaceLinkEstimateGolden, LinkOfUnknownRate) {
  CoveredEstimate estimate(slow_link(kNominal / 16));
  Course course(estimate);
  course.run({.what = "it begins small", .windows = 100, .link = 0.6e9});
  course.run({.what = "and finds its rate", .windows = 200, .link = 0.6e9});
  course.run({.what = "then all of it is there", .windows = 200});
  test::expect_golden("cc/pace_link_estimate_untold.txt", course.text());
}

}  // namespace
}  // namespace pacecar::link_estimate_golden_test
