// Benchmarks of the software NIC: its windows alone, and a pair of NICs joined in memory. There one
// item is one packet on both sides, with its acknowledgements.
#include <benchmark/benchmark.h>

#include <array>

#include "bench/measure/micro/nic_pair.h"
#include "transport/base/prng.h"
#include "transport/softnic/extended/receive_window.h"
#include "transport/softnic/extended/send_window.h"

namespace pacecar {
namespace {

constexpr uint32_t kWindow = 1024;

void send_window_in_order(benchmark::State& state) {
  SendWindow window(kWindow, 0);
  Instant now;
  uint64_t acknowledged = 0;
  for (auto _ : state) {
    now = now + Duration::from_ns(100);
    window.send({.bytes = 4096}, 0, now);
    if (window.next() - acknowledged < 64) continue;
    SendWindow::Packet packet;
    while (acknowledged < window.next()) window.acknowledge(acknowledged++, &packet);
    window.advance();
    while (window.lose_oldest_before(now - Duration::from_us(10))) {
    }
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(send_window_in_order);

void receive_window_in_order(benchmark::State& state) {
  ReceiveWindow window(kWindow, 0);
  uint64_t psn = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(window.classify(psn));
    window.mark(psn++);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(receive_window_in_order);

// Packets of several paths: each block of 64 arrives in random order.
void receive_window_shuffled(benchmark::State& state) {
  std::array<uint64_t, 64> order{};
  Prng prng(1);
  for (uint64_t i = 0; i < order.size(); ++i) {
    order[i] = i;
    std::swap(order[i], order[prng.below(i + 1)]);
  }
  ReceiveWindow window(kWindow, 0);
  uint64_t count = 0;
  for (auto _ : state) {
    const uint64_t psn = count / 64 * 64 + order[count % 64];
    benchmark::DoNotOptimize(window.classify(psn));
    window.mark(psn);
    ++count;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(receive_window_shuffled);

// A packet through both NICs, without a network.
void pair_write(benchmark::State& state) {
  const auto bytes = static_cast<Bytes>(state.range(0));
  const auto mtu = static_cast<Bytes>(state.range(1));
  MemoryWire wire(mtu, MemoryWire::Payload::kCopied);
  NicPair pair(mtu, bytes, wire, static_cast<Security>(state.range(2)));
  constexpr size_t kBatch = 64;
  uint64_t packets = 0;
  for (auto _ : state) packets += pair.move(kBatch);
  state.SetItemsProcessed(static_cast<int64_t>(packets));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * kBatch * bytes));
}
BENCHMARK(pair_write)
    ->ArgNames({"bytes", "mtu", "security"})
    ->ArgsProduct({{1 << 20}, {1408, 4096, 8192}, {0, 1, 2}})
    ->ArgsProduct({{64}, {4096}, {0, 1, 2}});

}  // namespace
}  // namespace pacecar
