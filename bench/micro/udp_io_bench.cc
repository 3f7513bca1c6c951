// The UDP packet I/O over loopback. Compare BM_Stream with `udp_limit stream` and twice
// BM_OneWay with the round trip of `udp_limit pingpong`.
#include <benchmark/benchmark.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>
#include <vector>

#include "transport/io/udp/udp_io.h"

namespace pacecar {
namespace {

constexpr size_t kHeaderBytes = 40;
constexpr size_t kPayloadBytes = 8192;
constexpr size_t kTrailerBytes = 4;
constexpr size_t kSourceBytes = 8 << 20;
constexpr size_t kReceiveSpan = 64;
constexpr int kIdleMs = 1;

std::unique_ptr<PacketIo> open_loopback() {
  UdpConfig config;
  config.interface = "lo";
  auto io = open_udp(config);
  if (!io) {
    std::fprintf(stderr, "%s\n", io.error().message.c_str());
    std::exit(1);
  }
  return std::move(*io);
}

double thread_cpu_s() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Data packets as the protocol makes them: trailer and next header side by side in a slab, payloads
// one after the other in a large buffer.
class Burst {
 public:
  Burst(size_t packets, const Address& to)
      : slab_(packets * (kHeaderBytes + kTrailerBytes), 1),
        source_(kSourceBytes, 2),
        packets_(packets) {
    for (size_t i = 0; i < packets; ++i) {
      const uint8_t* at = slab_.data() + i * (kHeaderBytes + kTrailerBytes);
      packets_[i].header = {at, kHeaderBytes};
      packets_[i].trailer = {at + kHeaderBytes, kTrailerBytes};
      packets_[i].destination = &to;
    }
  }

  std::span<const TxPacket> next() {
    for (TxPacket& packet : packets_) {
      packet.payload = {source_.data() + at_, kPayloadBytes};
      at_ = (at_ + kPayloadBytes) % kSourceBytes;
    }
    return packets_;
  }

 private:
  std::vector<uint8_t> slab_;
  std::vector<uint8_t> source_;
  std::vector<TxPacket> packets_;
  size_t at_ = 0;
};

// This thread sends bursts of range(0) packets, another one receives what it can.
void BM_Stream(benchmark::State& state) {
  const auto sender = open_loopback();
  const auto receiver = open_loopback();
  std::atomic<bool> stop = false;
  std::thread consumer([&] {
    std::array<RxPacket, kReceiveSpan> packets;
    pollfd ready{receiver->wait_fd(), POLLIN, 0};
    while (!stop.load(std::memory_order_relaxed)) {
      if (receiver->receive(packets, Instant()) == 0) poll(&ready, 1, kIdleMs);
    }
  });
  Burst burst(static_cast<size_t>(state.range(0)), receiver->local_address());
  const double cpu_start = thread_cpu_s();
  for (auto _ : state) sender->send(burst.next(), Instant());
  const double cpu = thread_cpu_s() - cpu_start;
  stop = true;
  consumer.join();
  const auto sent = static_cast<double>(sender->counters().sent_bytes);
  const auto received = static_cast<double>(receiver->counters().received_bytes);
  state.counters["gbps"] = benchmark::Counter(received * 8e-9, benchmark::Counter::kIsRate);
  state.counters["lost_share"] = 1 - received / sent;
  state.counters["cpu_s_per_gb_sender"] = cpu / (sent * 1e-9);
}
BENCHMARK(BM_Stream)->Arg(1)->Arg(7)->Arg(28)->UseRealTime();

// One thread sends a burst and receives it all.
void BM_SendThenReceive(benchmark::State& state) {
  const auto sender = open_loopback();
  const auto receiver = open_loopback();
  Burst burst(static_cast<size_t>(state.range(0)), receiver->local_address());
  std::array<RxPacket, kReceiveSpan> packets;
  for (auto _ : state) {
    size_t waiting = sender->send(burst.next(), Instant());
    while (waiting > 0) waiting -= receiver->receive(packets, Instant());
  }
  state.SetBytesProcessed(static_cast<int64_t>(receiver->counters().received_bytes));
}
BENCHMARK(BM_SendThenReceive)->Arg(1)->Arg(7)->Arg(28)->Arg(56);

// One short datagram, sent and received by the same thread.
void BM_OneWay(benchmark::State& state) {
  const auto sender = open_loopback();
  const auto receiver = open_loopback();
  const std::array<uint8_t, kHeaderBytes> header{};
  const Address to = receiver->local_address();
  TxPacket packet;
  packet.header = header;
  packet.destination = &to;
  std::array<RxPacket, kReceiveSpan> packets;
  for (auto _ : state) {
    sender->send({&packet, 1}, Instant());
    while (receiver->receive(packets, Instant()) == 0) {
    }
  }
}
BENCHMARK(BM_OneWay);

}  // namespace
}  // namespace pacecar
