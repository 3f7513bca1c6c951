// Benchmarks of the tuner: a call by NCCL, and the init of a communicator.
#include <benchmark/benchmark.h>

#include <array>

#include "net_plugin/tuner/tuner.h"

namespace pacecar::tuner {
namespace {

std::vector<PossibleCluster> clusters(size_t hosts, size_t gpus) {
  return *clusters_of({.ranks = hosts * gpus,
                       .nodes = hosts,
                       .nics = {nic_kind("a", 3.125e9, 0)},
                       .ranks_per_nvlink_domain = {}});
}

// What getCollInfo does when the tuner is on.
void choose(benchmark::State& state) {
  Tuners tuners;
  const void* const context = tuners.open(std::make_shared<Tuning>(Tuner(clusters(2, 1)), false));
  std::array<float, nccl::kTunedAlgorithms * nccl::kTunedProtocols> costs;
  size_t bytes = 8;
  for (auto _ : state) {
    costs.fill(nccl::kRuledOut);
    for (size_t i = 0; i < 6; ++i) costs[i] = 1;  // trees and rings
    bytes = bytes % (size_t{1} << 30) * 3 + 8;
    const Call call{.function = nccl::TunedFunction::kAllReduce, .bytes = bytes};
    tuners.find(context)->tuner.fill(call,
                                     {costs.data(), nccl::kTunedAlgorithms, nccl::kTunedProtocols});
    benchmark::DoNotOptimize(costs);
  }
}
BENCHMARK(choose);

void start(benchmark::State& state) {
  const auto possible =
      clusters(static_cast<size_t>(state.range(0)), static_cast<size_t>(state.range(1)));
  for (auto _ : state) benchmark::DoNotOptimize(Tuner(possible));
}
BENCHMARK(start)->Args({2, 1})->Args({64, 1})->Args({64, 8})->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pacecar::tuner
