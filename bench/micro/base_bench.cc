// Costs of the base data structures on the data path: timer wheel, pacer, ring, histogram.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "transport/base/histogram.h"
#include "transport/base/pacer.h"
#include "transport/base/prng.h"
#include "transport/base/spsc_ring.h"
#include "transport/base/timer_wheel.h"

namespace pacecar {
namespace {

// A transport's life: every timer that fires is armed again, up to `spread` ahead.
void wheel_fire_and_rearm(benchmark::State& state) {
  const auto timers = static_cast<uint32_t>(state.range(0));
  const auto spread_ns = static_cast<uint64_t>(state.range(1));
  TimerWheel wheel(timers, Instant());
  Prng prng(1);
  Instant now;
  const auto rearm = [&](uint32_t id) {
    const auto delay = static_cast<int64_t>(prng.below(spread_ns));
    wheel.arm(id, now + Duration::from_ns(delay));
  };
  for (uint32_t id = 0; id < timers; ++id) rearm(id);
  std::array<uint32_t, 64> due{};
  int64_t fired = 0;
  for (auto _ : state) {
    now = std::max(now, wheel.next_deadline());
    const size_t count = wheel.expire(now, due);
    for (size_t i = 0; i < count; ++i) rearm(due[i]);
    fired += static_cast<int64_t>(count);
  }
  state.SetItemsProcessed(fired);
}
BENCHMARK(wheel_fire_and_rearm)
    ->ArgsProduct({{16, 256, 4096, 65536}, {100'000, 10'000'000}})
    ->ArgNames({"timers", "spread_ns"});

// A retransmission timer that is moved with every acknowledgement and never fires.
void wheel_move(benchmark::State& state) {
  TimerWheel wheel(1024, Instant());
  uint32_t id = 0;
  int64_t now_ns = 0;
  for (auto _ : state) {
    wheel.arm(id++ % 1024, Instant::from_ns(now_ns += 100) + Duration::from_ms(1));
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(wheel_move);

void pacer_send(benchmark::State& state) {
  Pacer pacer(64 << 10);
  pacer.set_rate(Rate::from_gbps(400), Instant());
  for (auto _ : state) {
    const Instant now = pacer.next_send();
    benchmark::DoNotOptimize(now);
    pacer.on_sent(4096, now);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(pacer_send);

void pacer_set_rate(benchmark::State& state) {
  Pacer pacer(64 << 10);
  uint64_t gbps = 1;
  for (auto _ : state) {
    pacer.set_rate(Rate::from_gbps(gbps), Instant());
    gbps = gbps % 400 + 1;
  }
  benchmark::DoNotOptimize(pacer);
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(pacer_set_rate);

void ring_one_thread(benchmark::State& state) {
  SpscRing<uint64_t> ring(1024);
  uint64_t value = 0;
  for (auto _ : state) {
    ring.push(value);
    ring.pop(value);
    benchmark::DoNotOptimize(value);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(ring_one_thread);

// Elements through the ring from another thread; waits yield, so that one core suffices.
void ring_two_threads(benchmark::State& state) {
  SpscRing<uint64_t> ring(1024);
  std::atomic<bool> stop{false};
  std::thread producer([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      if (!ring.push(1)) std::this_thread::yield();
    }
  });
  for (auto _ : state) {
    uint64_t value = 0;
    while (!ring.pop(value)) std::this_thread::yield();
  }
  stop = true;
  producer.join();
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(ring_two_threads)->UseRealTime();

void histogram_record(benchmark::State& state) {
  Prng prng(1);
  std::vector<uint64_t> values(4096);
  for (uint64_t& value : values) value = 5'000 + prng.below(1'000'000);
  Histogram histogram;
  size_t i = 0;
  for (auto _ : state) histogram.record(values[i++ % values.size()]);
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(histogram_record);

void histogram_percentile(benchmark::State& state) {
  Prng prng(1);
  Histogram histogram;
  for (int i = 0; i < 100'000; ++i) histogram.record(5'000 + prng.below(1'000'000));
  for (auto _ : state) benchmark::DoNotOptimize(histogram.value_at_percentile(99.9));
}
BENCHMARK(histogram_percentile);

}  // namespace
}  // namespace pacecar
