// Benchmarks of sharing a link among so many processes: due() at each poll, and claim() after a
// change.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "transport/share/share_link.h"

namespace pacecar {
namespace {

constexpr Rate kLink = Rate::from_gbps(400);
constexpr Instant kNow = Instant::from_ns(1'000'000'000);

struct Host {
  explicit Host(int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      processes.push_back(std::make_unique<ShareProcess>(static_cast<uint64_t>(i + 1)));
      members.push_back(std::make_unique<ShareMember>(*table, *processes.back(), "bench", kLink));
    }
    for (int round = 0; round < 3; ++round) {
      for (size_t i = 0; i < members.size(); ++i) {
        // Demands that are met one after the other: the division takes several passes.
        members[i]->outgoing().claim(kNow, {.demand = Rate::from_gbps(i % 8 + 1), .weight = 1});
      }
    }
  }

  std::unique_ptr<ShareTable> table = std::make_unique<ShareTable>();
  std::vector<std::unique_ptr<ShareProcess>> processes;
  std::vector<std::unique_ptr<ShareMember>> members;
};

void due(benchmark::State& state) {
  Host host(state.range(0));
  const HostLink& link = host.members[0]->outgoing();
  for (auto _ : state) benchmark::DoNotOptimize(link.due(kNow));
}
BENCHMARK(due)->Arg(64);

void claim_unchanged(benchmark::State& state) {
  Host host(state.range(0));
  HostLink& link = host.members[0]->outgoing();
  for (auto _ : state) link.claim(kNow, {.demand = Rate::from_gbps(1), .weight = 1});
}
BENCHMARK(claim_unchanged)->Arg(1)->Arg(8)->Arg(64);

void claim_changed(benchmark::State& state) {
  Host host(state.range(0));
  HostLink& link = host.members[0]->outgoing();
  uint64_t turn = 0;
  for (auto _ : state) link.claim(kNow, {.demand = Rate::from_gbps(1 + ++turn % 2), .weight = 1});
}
BENCHMARK(claim_changed)->Arg(1)->Arg(8)->Arg(64);

void prospect(benchmark::State& state) {
  Host host(state.range(0));
  const HostLink& link = host.members[0]->outgoing();
  for (auto _ : state) benchmark::DoNotOptimize(link.prospect(1));
}
BENCHMARK(prospect)->Arg(8)->Arg(64);

}  // namespace
}  // namespace pacecar
