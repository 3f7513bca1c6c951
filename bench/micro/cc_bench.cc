// Cost of the congestion controls per call, and of the allocator with many senders.
#include <benchmark/benchmark.h>

#include <array>
#include <vector>

#include "cc/credit.h"
#include "cc/credit_share.h"
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
  controller->on_grant(
      now, {.rate = Rate::from_gbps(50), .phase = {}, .validity = Duration::from_s(1), .epoch = 1});
  for (auto _ : state) {
    now = now + Duration::from_ns(100);
    benchmark::DoNotOptimize(controller->decide(now));
  }
}
BENCHMARK(decide)->Apply(each_controller);

void on_ack(benchmark::State& state) {
  const auto controller = controller_at(state.range(0));
  state.SetLabel(std::string(controller->name()));
  TelemetryHop hop{.rate_mbps = 100'000};
  AckSample sample{.now = {}, .rtt = {}, .acked = kMtu, .in_flight = 100 * kMtu};
  sample.telemetry = {&hop, 1};
  int64_t i = 0;
  for (auto _ : state) {
    sample.now = sample.now + Duration::from_ns(300);
    sample.rtt = Duration::from_us(30 + (i++ & 63));
    sample.sent += kMtu;
    sample.echo_marked = (i & 64) != 0;
    hop.time_ns += 300;
    hop.sent_bytes += 3700;
    hop.queue_bytes = static_cast<uint32_t>(i & 63) * 1000;
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

void wish(CreditShare& share, Instant now, uint32_t flow, Bytes credit) {
  Demand demand;
  demand.is_credit = true;
  demand.credit = credit;
  share.on_demand(now, flow, demand);
}

std::unique_ptr<CreditShare> busy_credit() {
  const FlowEnvironment link{.line_rate = Rate::from_gbps(400),
                             .mtu = kMtu,
                             .overhead = 64,
                             .burst_bytes = kMtu,
                             .base_rtt = Duration::from_us(8)};
  auto share = std::make_unique<CreditShare>(link, kFlows);
  for (uint32_t flow = 0; flow < kFlows; ++flow) {
    share->add_flow(Instant(), flow);
    wish(*share, Instant(), flow, 1 << 20);
  }
  return share;
}

// A wish of one of 4096 senders, all of whom wait for their turn.
void credit_update(benchmark::State& state) {
  const auto share = busy_credit();
  uint32_t flow = 0;
  Bytes credit = 1 << 20;
  for (auto _ : state) {
    if (flow == 0) credit += kCreditUnit;
    wish(*share, Instant(), flow, credit);
    flow = (flow + 1) % kFlows;
  }
}
BENCHMARK(credit_update);

// One pull and a new wish, with 4096 senders taking turns.
void credit_pull(benchmark::State& state) {
  const auto share = busy_credit();
  std::array<GrantUpdate, 1> updates;
  for (auto _ : state) {
    const Instant now = share->next_deadline();
    share->poll_grants(now, updates);
    wish(*share, now, updates[0].flow, updates[0].grant.credit + (1 << 20));
  }
}
BENCHMARK(credit_pull);

void grant_word_round_trip(benchmark::State& state) {
  Grant grant{
      .rate = Rate::from_gbps(98), .phase = {}, .validity = EqualShare::kValidity, .epoch = 7};
  for (auto _ : state) {
    benchmark::DoNotOptimize(grant);
    benchmark::DoNotOptimize(wire::decode_grant(wire::encode_grant(grant)));
  }
}
BENCHMARK(grant_word_round_trip);

}  // namespace
}  // namespace pacecar
