// Costs of the software NIC: its windows alone, and a pair of NICs joined in memory, so that one
// item is what one packet costs both sides together, acknowledgements included.
#include <benchmark/benchmark.h>

#include <array>
#include <memory>
#include <vector>

#include "transport/base/prng.h"
#include "transport/softnic/receive_window.h"
#include "transport/softnic/send_window.h"
#include "transport/softnic/soft_nic.h"

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

// Packets of several paths: each block of 64 comes in a random order.
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

// Two NICs whose packets are handed over in memory. A packet's three parts become one datagram
// with a copy, as the kernel or a device would make one.
class Pair {
 public:
  Pair(Bytes mtu, Bytes write_bytes)
      : memory_{std::vector<uint8_t>(write_bytes), std::vector<uint8_t>(write_bytes)} {
    for (size_t side = 0; side < 2; ++side) {
      addresses_[side].port = 4791;
      addresses_[side].ip[15] = static_cast<uint8_t>(side + 1);
      nics_[side] = std::make_unique<SoftNic>(SoftNicConfig{.address = addresses_[side],
                                                            .line_rate = Rate::from_gbps(100),
                                                            .mtu = mtu,
                                                            .burst_bytes = 8 * mtu,
                                                            .flows = 2,
                                                            .queue_pairs = 4,
                                                            .full_checksum = false},
                                              RandomSource{next_random, &random_}, now_);
      ends_[side] = nics_[side]->create_queue_pair({.work_requests = 256}).value();
      regions_[side] =
          nics_[side]
              ->register_memory(memory_[side].data(), write_bytes, Access::kRemoteWrite)
              .value();
      nics_[side]->set_flow_limits(
          0, {.rate = Rate::from_gbps(1'000'000), .window = Bytes{1} << 40}, now_);
    }
    for (size_t side = 0; side < 2; ++side) {
      const auto peer = nics_[1 - side]->queue_pair_address(ends_[1 - side]);
      static_cast<void>(nics_[side]->connect_queue_pair(ends_[side], peer.view()));
    }
    datagrams_.resize(packets_.size() * (mtu + 64));
  }

  // Moves `count` writes, each `write_bytes`; returns the packets that took.
  uint64_t move(size_t count) {
    const uint64_t before = nics_[0]->counters().data_packets_sent;
    const WorkRequest write{.local = memory_[0].data(),
                            .remote = reinterpret_cast<uint64_t>(memory_[1].data()),
                            .length = memory_[0].size(),
                            .local_key = regions_[0].key,
                            .remote_key = regions_[1].key,
                            .opcode = Opcode::kWriteWithImm};
    size_t posted = 0;
    size_t sent = 0;
    std::array<Completion, 64> completions;
    while (sent < count) {
      while (posted < count && nics_[0]->post(ends_[0], {&write, 1}) == 1) ++posted;
      now_ = now_ + Duration::from_us(1);
      for (size_t side = 0; side < 2; ++side) {
        nics_[side]->on_time(now_);
        hand_over(side);
      }
      while (nics_[1]->poll(completions) > 0) {
      }
      while (const size_t some = nics_[0]->poll(completions)) sent += some;
    }
    return nics_[0]->counters().data_packets_sent - before;
  }

 private:
  static uint32_t next_random(void* prng) {
    return static_cast<uint32_t>(static_cast<Prng*>(prng)->next_u64());
  }
  void hand_over(size_t from) {
    const size_t count = nics_[from]->poll_transmit(now_, packets_);
    uint8_t* to = datagrams_.data();
    for (size_t i = 0; i < count; ++i) {
      uint8_t* const begin = to;
      for (const auto part : {packets_[i].header, packets_[i].payload, packets_[i].trailer}) {
        to = std::copy(part.begin(), part.end(), to);
      }
      received_[i] = {.bytes = {begin, to}, .source = &addresses_[from], .ecn = Ecn::kCapable0};
    }
    nics_[1 - from]->on_packets(now_, std::span(received_).first(count));
  }

  Prng random_{1};
  Instant now_ = Instant::from_ns(1'000'000);
  std::array<Address, 2> addresses_;
  std::array<std::vector<uint8_t>, 2> memory_;
  std::array<std::unique_ptr<SoftNic>, 2> nics_;
  std::array<QueuePairId, 2> ends_{};
  std::array<MemoryRegion, 2> regions_;
  std::array<TxPacket, 32> packets_;
  std::array<RxPacket, 32> received_;
  std::vector<uint8_t> datagrams_;
};

void pair_write(benchmark::State& state) {
  const auto bytes = static_cast<Bytes>(state.range(0));
  const auto mtu = static_cast<Bytes>(state.range(1));
  Pair pair(mtu, bytes);
  constexpr size_t kBatch = 64;
  uint64_t packets = 0;
  for (auto _ : state) packets += pair.move(kBatch);
  state.SetItemsProcessed(static_cast<int64_t>(packets));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * kBatch * bytes));
}
BENCHMARK(pair_write)
    ->ArgNames({"bytes", "mtu"})
    ->Args({1 << 20, 4096})
    ->Args({1 << 20, 8192})
    ->Args({64, 4096});

}  // namespace
}  // namespace pacecar
