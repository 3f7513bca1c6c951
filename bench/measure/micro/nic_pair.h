// Two software NICs in one process, and the wire between them. One thread; time is virtual.
#pragma once

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "transport/base/check.h"
#include "transport/base/prng.h"
#include "transport/softnic/soft_nic.h"

namespace pacecar {

class Wire {
 public:
  static constexpr size_t kBurst = 32;

  virtual ~Wire() = default;
  virtual const Address& address(size_t side) const = 0;
  // Carries packets of side `from` to the other side. Returns how many packets, of these or earlier
  // ones, have arrived; they are valid until the next call.
  virtual size_t carry(size_t from, std::span<const TxPacket> packets,
                       std::span<RxPacket, kBurst> arrived, Instant now) = 0;
};

// A wire in memory. It copies payloads, as the kernel or a device does, or carries their lengths.
class MemoryWire final : public Wire {
 public:
  enum class Payload : uint8_t { kCopied, kElided };

  MemoryWire(Bytes mtu, Payload payload)
      : elided_(payload == Payload::kElided), datagrams_(kBurst * (mtu + 64)) {
    for (size_t side = 0; side < 2; ++side) {
      addresses_[side].port = 4791;
      addresses_[side].ip[15] = static_cast<uint8_t>(side + 1);
    }
  }

  const Address& address(size_t side) const override { return addresses_[side]; }
  size_t carry(size_t from, std::span<const TxPacket> packets, std::span<RxPacket, kBurst> arrived,
               Instant /*now*/) override {
    uint8_t* to = datagrams_.data();
    for (size_t i = 0; i < packets.size(); ++i) {
      uint8_t* const begin = to;
      const TxPacket& packet = packets[i];
      for (const auto part :
           {packet.header, elided_ ? std::span<const uint8_t>() : packet.payload, packet.trailer}) {
        to = std::copy(part.begin(), part.end(), to);
      }
      arrived[i] = {.bytes = {begin, to},
                    .source = &addresses_[from],
                    .ecn = Ecn::kCapable0,
                    .elided = elided_ ? packet.payload.size() : 0};
    }
    return packets.size();
  }

 private:
  bool elided_;
  std::array<Address, 2> addresses_;
  std::vector<uint8_t> datagrams_;
};

// A software NIC with a queue pair and registered memory.
struct NicEnd {
  static constexpr Instant kStart = Instant::from_ns(1'000'000);

  NicEnd(SoftNicConfig config, Bytes write_bytes)
      : nic(with_common_values(config),
            {[](void* prng) { return static_cast<uint32_t>(static_cast<Prng*>(prng)->next_u64()); },
             &random},
            kStart),
        memory(write_bytes),
        region(nic.register_memory(memory.data(), memory.size(), Access::kRemoteWrite).value()),
        queue_pair(nic.create_queue_pair({.work_requests = 256}).value()) {
    nic.set_flow_limits(0, {.rate = Rate::from_gbps(1'000'000), .window = Bytes{1} << 40}, kStart);
  }

  bool connect(const NicEnd& peer) {
    const auto address = peer.nic.queue_pair_address(peer.queue_pair);
    return nic.connect_queue_pair(queue_pair, address.view()).has_value();
  }
  // A write of our whole memory into the peer's memory.
  WorkRequest write_to(const NicEnd& peer) const {
    return {.local = memory.data(),
            .remote = peer.region.remote_address,
            .length = memory.size(),
            .local_key = region.key,
            .remote_key = peer.region.key,
            .opcode = Opcode::kWriteWithImm};
  }

  static inline Prng random{1};
  SoftNic nic;
  std::vector<uint8_t> memory;
  MemoryRegion region;
  QueuePairId queue_pair;

 private:
  static SoftNicConfig with_common_values(SoftNicConfig config) {
    config.line_rate = Rate::from_gbps(100);
    config.flows = 2;
    config.queue_pairs = 4;
    config.full_checksum = false;
    return config;
  }
};

class NicPair {
 public:
  // `config` without the address.
  NicPair(SoftNicConfig config, Bytes write_bytes, Wire& wire) : wire_(wire) {
    for (size_t side = 0; side < 2; ++side) {
      config.address = wire.address(side);
      ends_[side] = std::make_unique<NicEnd>(config, write_bytes);
    }
    for (size_t side = 0; side < 2; ++side) {
      PACECAR_CHECK(ends_[side]->connect(*ends_[1 - side]));
    }
  }

  // Moves `count` writes of `write_bytes` each; returns the number of data packets. Not inlined:
  // instruction_counts.py counts this function by its name.
  [[gnu::noinline]] uint64_t move(size_t count) {
    NicEnd& from = *ends_[0];
    const uint64_t before = from.nic.counters().data_packets_sent;
    const WorkRequest request = from.write_to(*ends_[1]);
    size_t posted = 0;
    size_t sent = 0;
    while (sent < count) {
      while (posted < count && from.nic.post(from.queue_pair, {&request, 1}) == 1) ++posted;
      now_ = now_ + Duration::from_us(1);
      sent += turn(now_);
    }
    return from.nic.counters().data_packets_sent - before;
  }

 private:
  // Both NICs' timers, and their packets of this moment. Returns the number of completed writes.
  size_t turn(Instant now) {
    for (size_t side = 0; side < 2; ++side) {
      ends_[side]->nic.on_time(now);
      hand_over(side, now);
    }
    while (ends_[1]->nic.poll(completions_) > 0) {
    }
    size_t sent = 0;
    while (const size_t some = ends_[0]->nic.poll(completions_)) {
      for (const Completion& one : std::span(completions_).first(some)) {
        PACECAR_CHECK(one.status == CompletionStatus::kOk);
      }
      sent += some;
    }
    return sent;
  }
  void hand_over(size_t from, Instant now) {
    const size_t count = ends_[from]->nic.poll_transmit(now, packets_);
    const size_t arrived = wire_.carry(from, std::span(packets_).first(count), received_, now);
    ends_[1 - from]->nic.on_packets(now, std::span(received_).first(arrived));
  }

  Wire& wire_;
  Instant now_ = NicEnd::kStart;
  std::array<std::unique_ptr<NicEnd>, 2> ends_;
  std::array<TxPacket, Wire::kBurst> packets_;
  std::array<RxPacket, Wire::kBurst> received_;
  std::array<Completion, 64> completions_;
};

// main() of the programs for instruction_counts.py: calls `move(packets)` with the argument.
template <typename Move>
int cost_main(int argc, char** argv, const Move& move) {
  const uint64_t packets = argc == 2 ? std::strtoull(argv[1], nullptr, 10) : 0;
  if (packets > 0) return move(packets) ? 0 : 1;
  std::fprintf(stderr, "usage: %s PACKETS\n", argv[0]);
  return 2;
}

inline constexpr Bytes kCostMtu = 4096;
// Moves at least `packets` data packets, in writes of 1 MiB. False: fewer were sent.
inline bool move_packets(uint64_t packets, Wire& wire, Security security = Security::kOff) {
  constexpr Bytes kWriteBytes = 1 << 20;
  NicPair pair({.mtu = kCostMtu, .burst_bytes = 8 * kCostMtu, .security = security}, kWriteBytes,
               wire);
  return pair.move((packets * kCostMtu + kWriteBytes - 1) / kWriteBytes) >= packets;
}

}  // namespace pacecar
