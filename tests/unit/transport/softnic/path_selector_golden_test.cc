// The paths that each policy takes, burst by burst, through a network in which one path becomes
// slow, marked, full and dead, and recovers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "tests/support/golden.h"
#include "transport/softnic/paths/path_selector.h"

namespace pacecar::path_selector_golden_test {
namespace {

constexpr uint32_t kPaths = 8;
constexpr int64_t kRoundTripNs = 8000;
constexpr int64_t kGapNs = 100;    // between bursts
constexpr int kBurst = 2;          // packets
constexpr uint16_t kTroubled = 2;  // also the first path of the policies that stay on one

// The trouble of path kTroubled; all other paths are always alike.
struct Spell {
  const char* what;
  int bursts = 240;
  int64_t slower_ns = 0;
  PathEvent event = PathEvent::kGood;
  uint32_t one_in = 1;  // of the path's packets meets the event
};

class Course {
 public:
  explicit Course(PathPolicy policy) : selector_(policy, kPaths, 5, Duration::from_ns(200)) {}

  void run(const Spell& spell) {
    text_ += fmt::format("# {}\n", spell.what);
    for (int burst = 0; burst < spell.bursts; ++burst, now_ = now_ + Duration::from_ns(kGapNs)) {
      report_due();
      const uint16_t path = selector_.next(now_);
      text_ += static_cast<char>('0' + path);
      if (burst % 80 == 79) text_ += '\n';
      for (int i = 0; i < kBurst; ++i) send(path, i, spell);
    }
  }
  const std::string& text() const { return text_; }

 private:
  struct Report {
    Instant at;
    uint16_t path;
    PathFeedback feedback;
  };

  void send(uint16_t path, int number, const Spell& spell) {
    const bool troubled = path == kTroubled && ++met_ % spell.one_in == 0;
    const PathEvent event = troubled ? spell.event : PathEvent::kGood;
    const bool arrives = event == PathEvent::kGood || event == PathEvent::kMarked;
    // The second packet of a burst is acknowledged but not echoed.
    const bool echoed = number == 0 || !arrives;
    const int64_t jitter = (met_ * 37 + path * 11) % 50;
    const int64_t slower = path == kTroubled ? spell.slower_ns : 0;
    const auto rtt = Duration::from_ns(kRoundTripNs + jitter + slower);
    const Instant at = now_ + (event == PathEvent::kLost ? rtt * 2 : rtt);
    const Report report{at,
                        path,
                        {.event = echoed ? event : PathEvent::kArrived,
                         .rtt = echoed && arrives ? rtt : Duration(),
                         .now = at,
                         .sent = now_}};
    const auto later = [](const Report& a, const Report& b) { return a.at < b.at; };
    reports_.insert(std::upper_bound(reports_.begin(), reports_.end(), report, later), report);
  }
  void report_due() {
    for (; !reports_.empty() && reports_.front().at <= now_; reports_.pop_front()) {
      selector_.on_feedback(reports_.front().path, reports_.front().feedback);
    }
  }

  PathSelector selector_;
  std::deque<Report> reports_;  // by time
  Instant now_ = Instant::from_ns(1'000'000);
  uint32_t met_ = 0;
  std::string text_;
};

TEST(PathSelectorGolden, PathsOfEachPolicyAreThoseOfTheGoldenFile) {
  constexpr std::pair<PathPolicy, const char*> kPolicies[] = {
      {PathPolicy::kSticky, "sticky"},    {PathPolicy::kPenalty, "penalty"},
      {PathPolicy::kRecycle, "recycle"},  {PathPolicy::kBalanced, "balanced"},
      {PathPolicy::kReroute, "rerouted"},
  };
  std::string text;
  for (const auto& [policy, name] : kPolicies) {
    Course course(policy);
    course.run({.what = "all are alike"});
    course.run({.what = "one is slower", .bursts = 480, .slower_ns = 3000});
    course.run({.what = "it is marked", .event = PathEvent::kMarked});
    course.run({.what = "now and then", .event = PathEvent::kMarked, .one_in = 8});
    course.run({.what = "it trims", .event = PathEvent::kTrimmed, .one_in = 3});
    course.run({.what = "it loses one of many", .event = PathEvent::kLost, .one_in = 16});
    course.run({.what = "it is dead", .bursts = 1200, .event = PathEvent::kLost});
    course.run({.what = "all are alike again", .bursts = 1200});
    text += fmt::format("--- {} ---\n{}", name, course.text());
  }
  test::expect_golden("softnic/paths.txt", text);
}

}  // namespace
}  // namespace pacecar::path_selector_golden_test
