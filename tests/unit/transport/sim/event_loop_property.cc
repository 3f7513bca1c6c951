// EventLoop against a sorted reference: by time, then by the order of arming.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "transport/sim/event_loop.h"

namespace pacecar::event_loop_property {
namespace {

constexpr uint32_t kTimers = 40;

// The reference: all armed timers, sorted.
struct Model {
  std::set<std::tuple<int64_t, uint64_t, uint32_t>> armed;
  std::map<uint32_t, std::pair<int64_t, uint64_t>> keys;
  uint64_t next_order = 0;

  void cancel(uint32_t timer) {
    const auto key = keys.find(timer);
    if (key == keys.end()) return;
    armed.erase({key->second.first, key->second.second, timer});
    keys.erase(key);
  }
  void arm(uint32_t timer, int64_t time) {
    cancel(timer);
    armed.insert({time, next_order, timer});
    keys[timer] = {time, next_order++};
  }
};

struct World final : EventSink {
  EventLoop loop;
  Model model;
  std::vector<EventLoop::TimerId> timers;
  std::vector<uint32_t> chains;  // timers that arm another when they run

  World() {
    for (uint32_t i = 0; i < kTimers; ++i) timers.push_back(loop.add_timer(*this, i));
  }
  void arm(uint32_t timer, int64_t time) {
    loop.arm(timers[timer], Instant::from_ns(time));
    model.arm(timer, time);
  }
  void on_event(Instant now, uint32_t timer) override {
    RC_ASSERT(!model.armed.empty());
    const auto [time, order, expected] = *model.armed.begin();
    RC_ASSERT(timer == expected);
    RC_ASSERT(now.ns() == time);
    RC_ASSERT(loop.now() == now);
    RC_ASSERT(loop.deadline(timers[timer]) == Instant::never());
    model.cancel(timer);
    // An event may arm a timer, also for this instant.
    if (timer % 5 == 0) arm((timer + 1) % kTimers, now.ns() + timer % 3 * 700);
  }
};

// Distances within one slot, one window, and every level above.
rc::Gen<int64_t> distance() {
  return rc::gen::mapcat(rc::gen::inRange(0, 55), [](int bits) {
    return rc::gen::inRange<int64_t>(0, (int64_t{1} << bits) + 1);
  });
}

RC_GTEST_PROP(EventLoop, EventsRunInOrderOfTimeThenArming, ()) {
  World world;
  const auto steps =
      *rc::gen::container<std::vector<std::tuple<uint8_t, uint32_t, int64_t>>>(rc::gen::tuple(
          rc::gen::inRange<uint8_t>(0, 10), rc::gen::inRange<uint32_t>(0, kTimers), distance()));
  for (const auto& [action, timer, far] : steps) {
    const int64_t now = world.loop.now().ns();
    if (action < 5) {
      world.arm(timer, now + far);
    } else if (action == 5) {
      world.loop.cancel(world.timers[timer]);
      world.model.cancel(timer);
    } else if (action == 6) {
      const uint64_t before = world.loop.events();
      const bool ran = world.loop.run_one();
      RC_ASSERT(ran == (world.loop.events() > before));
    } else if (action < 9) {
      const Instant until = Instant::from_ns(now + std::min<int64_t>(far, 1 << 20));
      world.loop.run_until(until);
      RC_ASSERT(world.loop.now() == until);
      RC_ASSERT(world.loop.next_time() > until);
    }
    const auto& armed = world.model.armed;
    RC_ASSERT(world.loop.next_time() ==
              (armed.empty() ? Instant::never() : Instant::from_ns(std::get<0>(*armed.begin()))));
  }
  for (int left = 2000; left > 0 && world.loop.run_one(); --left) {
  }
}

}  // namespace
}  // namespace pacecar::event_loop_property
