// Benchmarks of the profiler's recorder in NCCL's threads: one message, and one operation.
#include <benchmark/benchmark.h>

#include "net_plugin/profiler/recorder.h"

namespace pacecar::profiler {
namespace {

uint64_t no_clock() { return 1; }

// The calls of NCCL for a sent message: start, waits for GPU, peer and network, stop.
void one_step(Recorder& recorder, void* context, void* operation) {
  void* const step = recorder.start(context, {.kind = EventKind::kProxyStep}, operation);
  recorder.wait(step, Wait::kGpu, 0);
  recorder.wait(step, Wait::kPeer, 0);
  recorder.wait(step, Wait::kNetwork, 65536);
  recorder.stop(step);
}

void step(benchmark::State& state, Clock clock) {
  Recorder recorder(clock);
  void* const context = recorder.open({.communicator = 1, .rank = 0, .ranks = 2, .nodes = 2});
  void* const operation = recorder.start(context, {.kind = EventKind::kProxyOp}, nullptr);
  for (auto _ : state) one_step(recorder, context, operation);
  state.SetItemsProcessed(state.iterations() * 5);
}
void message(benchmark::State& state) { step(state, monotonic_ns); }
void message_without_clock(benchmark::State& state) { step(state, no_clock); }
BENCHMARK(message);
BENCHMARK(message_without_clock);

void operation(benchmark::State& state) {
  Recorder recorder(monotonic_ns);
  void* const context = recorder.open({.communicator = 1, .rank = 0, .ranks = 2, .nodes = 2});
  for (auto _ : state) {
    void* const whole = recorder.start(context, {.kind = EventKind::kCollective}, nullptr);
    recorder.stop(whole);
    void* const part = recorder.start(context, {.kind = EventKind::kProxyOp}, whole);
    recorder.stop(part);
  }
}
BENCHMARK(operation);

}  // namespace
}  // namespace pacecar::profiler
