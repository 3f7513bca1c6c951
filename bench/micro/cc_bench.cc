// Cost of the congestion controls per call, and of the allocator with many senders.
#include <benchmark/benchmark.h>

#include <array>
#include <vector>

#include "cc/equal_share.h"
#include "cc/grant_word.h"
#include "cc/registry.h"

namespace pacecar {
namespace {

constexpr Bytes kMtu = 4096;
constexpr uint32_t kFlows = 4096;

std::unique_ptr<Controller> controller_at(int64_t index) {
  const FlowEnvironment environment{.line_rate = Rate::from_gbps(100),
                                    .mtu = kMtu,
                                    .burst_bytes = 15 * kMtu,
                                    .base_rtt = Duration::from_us(20)};
  return make_controller(controllers()[static_cast<size_t>(index)].name, environment, Rate())
      .value();
}

void each_controller(benchmark::internal::Benchmark* b) {
  for (size_t i = 0; i < controllers().size(); ++i) b->Arg(static_cast<int64_t>(i));
}

void decide(benchmark::State& state) {
  const auto controller = controller_at(state.range(0));
  state.SetLabel(std::string(controller->name()));
  Instant now;
  controller->on_grant(now, {Rate::from_gbps(50), Duration(), Duration::from_s(1), 1});
  for (auto _ : state) {
    now = now + Duration::from_ns(100);
    benchmark::DoNotOptimize(controller->decide(now));
  }
}
BENCHMARK(decide)->Apply(each_controller);

void on_ack(benchmark::State& state) {
  const auto controller = controller_at(state.range(0));
  state.SetLabel(std::string(controller->name()));
  AckSample sample{.now = {}, .rtt = {}, .acked = kMtu, .in_flight = 100 * kMtu};
  int64_t i = 0;
  for (auto _ : state) {
    sample.now = sample.now + Duration::from_ns(300);
    sample.rtt = Duration::from_us(30 + (i++ & 63));
    controller->on_ack(sample);
  }
}
BENCHMARK(on_ack)->Apply(each_controller);

std::unique_ptr<EqualShare> busy_allocator() {
  auto allocator = std::make_unique<EqualShare>(Rate::from_gbps(400), kFlows);
  for (uint32_t flow = 0; flow < kFlows; ++flow) {
    allocator->add_flow(Instant(), flow);
    allocator->on_posted(Instant(), flow, 1);
  }
  return allocator;
}

// A receive posted and finished, with 4096 senders active.
void allocator_update(benchmark::State& state) {
  const auto allocator = busy_allocator();
  uint32_t flow = 0;
  for (auto _ : state) {
    allocator->on_posted(Instant(), flow, 1000);
    allocator->on_finished(Instant(), flow, 1000);
    flow = (flow + 1) % kFlows;
  }
}
BENCHMARK(allocator_update);

// One sender of 4096 comes or goes, and every grant changes; time per grant sent.
void allocator_regrant(benchmark::State& state) {
  const auto allocator = busy_allocator();
  std::array<GrantUpdate, 64> updates;
  Instant now = Instant::from_ns(1);
  bool present = true;
  int64_t sent = 0;
  for (auto _ : state) {
    now = now + Duration::from_us(1);
    present = !present;
    present ? allocator->on_posted(now, 0, 1) : allocator->on_finished(now, 0, 1);
    while (const size_t count = allocator->poll_grants(now, updates)) {
      sent += static_cast<int64_t>(count);
    }
  }
  state.SetItemsProcessed(sent);
}
BENCHMARK(allocator_regrant);

void grant_word_round_trip(benchmark::State& state) {
  Grant grant{Rate::from_gbps(98), Duration(), EqualShare::kValidity, 7};
  for (auto _ : state) {
    benchmark::DoNotOptimize(grant);
    benchmark::DoNotOptimize(wire::decode_grant(wire::encode_grant(grant)));
  }
}
BENCHMARK(grant_word_round_trip);

}  // namespace
}  // namespace pacecar
