// Writes with immediate from one NIC of ours to another, both on the machine's first RDMA device
// that is up. Compare with `ib_write_bw -s 65536` from perftest on the same device.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "transport/verbs/verbs_nic.h"

namespace pacecar {
namespace {

constexpr uint32_t kOutstanding = 64;

Instant monotonic_now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return Instant::from_ns(t.tv_sec * 1'000'000'000 + t.tv_nsec);
}

template <typename T>
T value_of(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "%s\n", result.error().message.c_str());
  std::exit(1);
}

class Pair {
 public:
  Pair(const VerbsPortInfo& port, uint32_t lanes, Bytes bytes) : buffer_(2 * bytes), bytes_(bytes) {
    for (size_t side = 0; side < 2; ++side) {
      nics_[side] = value_of(VerbsNic::open(
          {.device = port.device, .port = port.port, .flows = 1, .queue_pairs = 2, .paths = lanes},
          monotonic_now()));
      ends_[side] = value_of(nics_[side]->create_queue_pair({.work_requests = kOutstanding}));
      memory_[side] = value_of(
          nics_[side]->register_memory(buffer_.data(), buffer_.size(), Access::kRemoteWrite));
    }
    for (size_t side = 0; side < 2; ++side) {
      const auto peer = nics_[1 - side]->queue_pair_address(ends_[1 - side]);
      const auto joined = nics_[side]->connect_queue_pair(ends_[side], peer.view());
      if (!joined) value_of<int>(tl::unexpected(joined.error()));
    }
    nics_[0]->set_flow_limits(0, {.rate = Rate::from_gbps(10'000), .window = Bytes{1} << 40},
                              monotonic_now());
  }

  // Posts what there is room for, turns both ends once, and returns how many writes arrived.
  size_t turn() {
    const WorkRequest write{.local = buffer_.data(),
                            .remote = memory_[1].remote_address + bytes_,
                            .length = bytes_,
                            .local_key = memory_[0].key,
                            .remote_key = memory_[1].key,
                            .opcode = Opcode::kWriteWithImm};
    while (nics_[0]->post(ends_[0], {&write, 1}) == 1) {
    }
    size_t arrived = 0;
    for (const auto& nic : nics_) {
      const Instant now = monotonic_now();
      nic->receive(now);
      nic->on_time(now);
      std::array<Completion, 64> completions;
      const size_t count = nic->poll(completions);
      for (const Completion& completion : std::span(completions).first(count)) {
        if (completion.kind == CompletionKind::kReceived) ++arrived;
        if (completion.status != CompletionStatus::kOk) {
          std::fprintf(stderr, "%s\n", nic->fault(completion.queue_pair).c_str());
          std::exit(1);
        }
      }
      nic->transmit(now);
    }
    return arrived;
  }

 private:
  std::vector<uint8_t> buffer_;  // outlives the NICs
  Bytes bytes_;
  std::array<std::unique_ptr<VerbsNic>, 2> nics_;
  std::array<QueuePairId, 2> ends_{};
  std::array<MemoryRegion, 2> memory_{};
};

// Writes of range(0) bytes over range(1) lanes.
void BM_Write(benchmark::State& state) {
  const auto ports = value_of(list_verbs_ports());
  const auto port = std::ranges::find(ports, true, &VerbsPortInfo::active);
  if (port == ports.end()) return state.SkipWithError("this machine has no RDMA device that is up");
  const auto bytes = static_cast<Bytes>(state.range(0));
  Pair pair(*port, static_cast<uint32_t>(state.range(1)), bytes);
  size_t arrived = 0;
  for (auto _ : state) {
    size_t before = arrived;
    while (arrived == before) arrived += pair.turn();
  }
  state.SetItemsProcessed(static_cast<int64_t>(arrived));
  state.SetBytesProcessed(static_cast<int64_t>(arrived * bytes));
}
BENCHMARK(BM_Write)
    ->ArgsProduct({{8, 4096, 65536}, {1, 4}})
    ->ArgNames({"bytes", "lanes"})
    ->UseRealTime();

}  // namespace
}  // namespace pacecar
