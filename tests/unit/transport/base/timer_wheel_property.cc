// The timer wheel against a sorted list.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "transport/base/timer_wheel.h"

namespace pacecar::timer_wheel_property {
namespace {

constexpr uint32_t kCapacity = 12;
constexpr int64_t kTickNs = 1024;

// One step. `kind`: 0..5 arm, 6 cancel, 7..9 advance the time.
struct Step {
  int kind;
  uint32_t id;
  int64_t span_ns;  // until the deadline, or by which time advances
  size_t room;      // capacity of the output
};

rc::Gen<int64_t> spans() {
  return rc::gen::map(rc::gen::pair(rc::gen::inRange(0, 56), rc::gen::arbitrary<uint64_t>()),
                      [](const std::pair<int, uint64_t>& parts) {
                        return static_cast<int64_t>(parts.second % (uint64_t{2} << parts.first));
                      });
}

rc::Gen<Step> steps() {
  return rc::gen::build<Step>(
      rc::gen::set(&Step::kind, rc::gen::inRange(0, 10)),
      rc::gen::set(&Step::id, rc::gen::inRange(0U, kCapacity)),
      rc::gen::set(&Step::span_ns, spans()),
      rc::gen::set(&Step::room, rc::gen::inRange<size_t>(1, kCapacity + 2)));
}

int64_t tick_of(Instant instant) { return instant.ns() >> 10; }

class Comparison {
 public:
  explicit Comparison(Instant start) : now_(start), wheel_(kCapacity, start) {}

  void apply(const Step& step) {
    if (step.kind < 6) {
      // One deadline in six is in the past.
      const Duration span =
          Duration::from_ns(step.kind == 0 ? -(step.span_ns % 100'000) : step.span_ns);
      arm(step.id, now_ + span);
    } else if (step.kind == 6) {
      wheel_.cancel(step.id);
      model_.erase(step.id);
    } else {
      now_ = now_ + Duration::from_ns(step.span_ns);
      expire(step.room);
    }
    for (uint32_t id = 0; id < kCapacity; ++id) RC_ASSERT(wheel_.armed(id) == model_.contains(id));
    check_next_deadline();
  }

 private:
  struct Timer {
    Instant deadline;
    int64_t tick;  // timers fire in the order of their ticks
  };

  void arm(uint32_t id, Instant deadline) {
    wheel_.arm(id, deadline);
    model_[id] = {deadline, std::max(tick_of(deadline), tick_of(now_))};
  }

  void expire(size_t room) {
    std::array<uint32_t, kCapacity + 2> out{};
    int64_t last_tick = std::numeric_limits<int64_t>::min();
    size_t count = room;
    while (count == room) {
      count = wheel_.expire(now_, std::span(out).first(room));
      RC_ASSERT(count <= room);
      for (size_t i = 0; i < count; ++i) {
        const auto timer = model_.find(out[i]);
        RC_ASSERT(timer != model_.end());
        RC_ASSERT(timer->second.deadline <= now_);
        RC_ASSERT(timer->second.tick >= last_tick);
        last_tick = timer->second.tick;
        model_.erase(timer);
      }
    }
    for (const auto& [id, timer] : model_) RC_ASSERT(timer.deadline > now_);
  }

  void check_next_deadline() const {
    const Instant next = wheel_.next_deadline();
    if (model_.empty()) {
      RC_ASSERT(next == Instant::never());
      return;
    }
    const Instant earliest =
        std::min_element(model_.begin(), model_.end(), [](const auto& a, const auto& b) {
          return a.second.deadline < b.second.deadline;
        })->second.deadline;
    RC_ASSERT(next <= earliest);
    RC_ASSERT(next > now_ || earliest <= now_);
    if (tick_of(earliest) / 64 == tick_of(now_) / 64) RC_ASSERT(next == earliest);
  }

  Instant now_;
  TimerWheel wheel_;
  std::map<uint32_t, Timer> model_;
};

RC_GTEST_PROP(TimerWheel, BehavesAsASortedList, ()) {
  const auto start = *rc::gen::element<int64_t>(0, 1, kTickNs * 64 - 1, 1'700'000'000'000'000'000);
  Comparison comparison(Instant::from_ns(start));
  for (const Step& step : *rc::gen::container<std::vector<Step>>(steps())) comparison.apply(step);
}

}  // namespace
}  // namespace pacecar::timer_wheel_property
