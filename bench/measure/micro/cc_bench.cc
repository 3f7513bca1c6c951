// Benchmarks of the congestion controls, per call, and of the allocators with many senders.
#include <benchmark/benchmark.h>

#include <array>
#include <vector>

#include "cc/credit.h"
#include "cc/credit_share.h"
#include "cc/grant_word.h"
#include "cc/pace/link_share.h"
#include "cc/pace/receiver.h"
#include "cc/registry.h"

namespace pacecar {
namespace {

constexpr Bytes kMtu = 4096;
constexpr uint32_t kFlows = 4096;

constexpr Grant kGrant{
    .rate = Rate::from_gbps(50), .phase = {}, .validity = Duration::from_s(1), .epoch = 1};

// The controller of this run, which is labelled with its name.
std::shared_ptr<Controller> controller_of(benchmark::State& state) {
  const FlowEnvironment environment{.line_rate = Rate::from_gbps(100),
                                    .mtu = kMtu,
                                    .burst_bytes = 15 * kMtu,
                                    .base_rtt = Duration::from_us(20)};
  const std::string_view name = controllers()[static_cast<size_t>(state.range(0))].name;
  state.SetLabel(std::string(name));
  std::shared_ptr<ControllerSet> set =
      make_controllers(name, environment, Rate(), {}, /*max_flows=*/1).value();
  Controller& controller = set->add_flow(Instant(), 0);
  return {std::move(set), &controller};
}

void each_controller(benchmark::internal::Benchmark* b) {
  b->DenseRange(0, static_cast<int64_t>(controllers().size()) - 1);
}

void count_each(benchmark::State& state, const char* what, size_t count) {
  state.counters[what] =
      benchmark::Counter(static_cast<double>(count), benchmark::Counter::kAvgIterations);
}

void decide(benchmark::State& state) {
  const auto controller = controller_of(state);
  Instant now;
  controller->on_grant(now, kGrant);
  controller->demand(now, {.backlog = Bytes{1} << 40});
  for (auto _ : state) {
    now = now + Duration::from_ns(100);
    benchmark::DoNotOptimize(controller->decide(now));
  }
}
BENCHMARK(decide)->Apply(each_controller);

void on_ack(benchmark::State& state) {
  const auto controller = controller_of(state);
  controller->demand({}, {.backlog = Bytes{1} << 40});
  FlowSignal signal{.acked = kMtu, .in_flight = 100 * kMtu, .hops = 1};
  TelemetryHop& hop = signal.telemetry[0];
  hop.rate_mbps = 100'000;
  constexpr uint32_t kPacketNs = 330;  // of kMtu at 100 Gb/s
  Instant now;
  int64_t i = 0;
  for (auto _ : state) {
    now = now + Duration::from_ns(kPacketNs);
    signal.rtt = Duration::from_us(30 + (i++ & 63));
    signal.sent += kMtu;
    signal.echo_marked = (i & 64) != 0;
    hop.time_ns += kPacketNs;
    hop.sent_bytes += kMtu;
    hop.queue_bytes = static_cast<uint32_t>(i & 63) * 1000;
    controller->on_ack(now, signal);
  }
}
BENCHMARK(on_ack)->Apply(each_controller);

// A sender with a backlog computes its demand after each acknowledgement.
void demand(benchmark::State& state) {
  const auto controller = controller_of(state);
  controller->on_grant({}, kGrant);
  Instant now;
  FlowStats stats{.backlog = Bytes{1} << 40};
  for (auto _ : state) {
    now = now + Duration::from_ns(300);
    stats.acked += kMtu;
    stats.backlog -= kMtu;
    benchmark::DoNotOptimize(controller->demand(now, stats));
  }
}
BENCHMARK(demand)->Apply(each_controller);

constexpr FlowEnvironment kFabric{.line_rate = Rate::from_gbps(400),
                                  .mtu = kMtu,
                                  .overhead = 64,
                                  .burst_bytes = kMtu,
                                  .base_rtt = Duration::from_us(8)};

// A receiver with 4096 senders, of which some are active. An event happens every 100 ns; the grants
// that follow from it are part of the time.
class BusyReceiver {
 public:
  explicit BusyReceiver(uint32_t active) : receiver_(kFabric, kFlows), demands_(kFlows) {
    for (uint32_t flow = 0; flow < kFlows; ++flow) {
      receiver_.add_flow(now_, flow);
      receiver_.on_posted(now_, flow, Bytes{1} << 40);
    }
    for (uint32_t flow = 0; flow < active; ++flow) demand(flow, kFabric.line_rate);
    now_ = now_ + Duration::from_ms(1);
    poll();
  }

  void demand(uint32_t flow, Rate usable) {
    Demand& demand = demands_[flow];
    demand.usable = usable;
    if (usable > Rate()) demand.wanted += 1 << 20;
    ++demand.epoch;
    receiver_.on_demand(now_, flow, demand);
  }
  void arrive(uint32_t flow) { receiver_.on_arrival(now_, flow, 1, {.ns = 1000, .payload = 1}); }
  void poll() {
    std::array<GrantUpdate, 64> updates;
    while (receiver_.next_deadline() <= now_) grants_ += receiver_.poll_grants(now_, updates);
    now_ = now_ + Duration::from_ns(100);
  }
  size_t grants() const { return grants_; }

 private:
  Instant now_ = Instant::from_ns(1'000'000);
  PaceReceiver receiver_;
  std::vector<Demand> demands_;
  size_t grants_ = 0;
};

// `step(receiver, i)` of a receiver with `active` senders, and the grants that follow.
template <typename Step>
void pace(benchmark::State& state, uint32_t active, Step step) {
  BusyReceiver busy(active);
  uint32_t i = 0;
  for (auto _ : state) {
    step(busy, i++);
    busy.poll();
  }
  count_each(state, "grants", busy.grants());
}

// The demand of one of 4096 active senders changes. Every second one can use 49 Mb/s only, and in
// the next pass the others.
void pace_demand(benchmark::State& state) {
  pace(state, kFlows, [](BusyReceiver& busy, uint32_t i) {
    const bool little = (i + i / kFlows) % 2 == 0;
    busy.demand(i % kFlows, Rate::from_bps(400'000'000'000 >> (little ? 13 : 0)));
  });
}
BENCHMARK(pace_demand);

// A packet of one of 4096 active senders arrives. Its size does not matter.
void pace_arrival(benchmark::State& state) {
  pace(state, kFlows, [](BusyReceiver& busy, uint32_t i) { busy.arrive(i % kFlows); });
}
BENCHMARK(pace_arrival);

// Of 4096 senders, half active, one has finished and another begins.
void pace_activation(benchmark::State& state) {
  pace(state, kFlows / 2, [](BusyReceiver& busy, uint32_t i) {
    busy.demand(i % kFlows, Rate());
    busy.demand((i + kFlows / 2) % kFlows, kFabric.line_rate);
  });
}
BENCHMARK(pace_activation);

// One flow of a sender is granted another rate, and the sender visits the affected flows.
void link_share(benchmark::State& state) {
  const auto flows = static_cast<uint32_t>(state.range(0));
  LinkShare share({.line_rate = Rate::from_gbps(400)}, flows, 1.0 / 64);
  for (uint32_t flow = 0; flow < flows; ++flow) share.set(flow, Rate::from_gbps(100), 1);
  std::array<uint32_t, 64> changed;
  const uint64_t even = 400'000'000'000 / flows;
  uint32_t flow = 0;
  uint32_t pass = 0;
  size_t visits = 0;
  for (auto _ : state) {
    share.set(flow, Rate::from_bps(even / (1 + pass % 2)), 1);  // each pass halves or restores it
    while (const size_t count = share.poll_changed(changed)) visits += count;
    benchmark::DoNotOptimize(share.share(flow));
    flow = (flow + 1) % flows;
    pass += flow == 0 ? 1 : 0;
  }
  count_each(state, "visits", visits);
}
BENCHMARK(link_share)->Arg(64)->Arg(1024);

void demand_credit(CreditShare& share, Instant now, uint32_t flow, Bytes credit) {
  Demand demand;
  demand.is_credit = true;
  demand.credit = credit;
  share.on_demand(now, flow, demand);
}

std::unique_ptr<CreditShare> busy_credit() {
  auto share = std::make_unique<CreditShare>(kFabric, kFlows);
  for (uint32_t flow = 0; flow < kFlows; ++flow) {
    share->add_flow(Instant(), flow);
    demand_credit(*share, Instant(), flow, 1 << 20);
  }
  return share;
}

// A demand of one of 4096 senders, all of which wait for their turn.
void credit_update(benchmark::State& state) {
  const auto share = busy_credit();
  uint32_t flow = 0;
  Bytes credit = 1 << 20;
  for (auto _ : state) {
    if (flow == 0) credit += kCreditUnit;
    demand_credit(*share, Instant(), flow, credit);
    flow = (flow + 1) % kFlows;
  }
}
BENCHMARK(credit_update);

// One grant of credit and that sender's next demand, with 4096 senders taking turns.
void credit_pull(benchmark::State& state) {
  const auto share = busy_credit();
  std::array<GrantUpdate, 1> updates;
  for (auto _ : state) {
    const Instant now = share->next_deadline();
    share->poll_grants(now, updates);
    demand_credit(*share, now, updates[0].flow, updates[0].grant.credit + (1 << 20));
  }
}
BENCHMARK(credit_pull);

void grant_word_round_trip(benchmark::State& state) {
  Grant grant = kGrant;
  for (auto _ : state) {
    benchmark::DoNotOptimize(grant);
    benchmark::DoNotOptimize(wire::decode_grant(wire::encode_grant(grant)));
  }
}
BENCHMARK(grant_word_round_trip);

}  // namespace
}  // namespace pacecar
