// Two software NICs in one process, and the wire between them. One thread; time is virtual.
#pragma once

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

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

inline RandomSource random_source(Prng& prng) {
  return {
      [](void* source) { return static_cast<uint32_t>(static_cast<Prng*>(source)->next_u64()); },
      &prng};
}

class NicPair {
 public:
  NicPair(Bytes mtu, Bytes write_bytes, Wire& wire, Security security = Security::kOff)
      : wire_(wire), memory_{std::vector<uint8_t>(write_bytes), std::vector<uint8_t>(write_bytes)} {
    for (size_t side = 0; side < 2; ++side) {
      nics_[side] = std::make_unique<SoftNic>(SoftNicConfig{.address = wire.address(side),
                                                            .line_rate = Rate::from_gbps(100),
                                                            .mtu = mtu,
                                                            .burst_bytes = 8 * mtu,
                                                            .flows = 2,
                                                            .queue_pairs = 4,
                                                            .full_checksum = false,
                                                            .security = security},
                                              random_source(random_), now_);
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
  }

  // Moves `count` writes of `write_bytes` each; returns the number of data packets. Not inlined:
  // instruction_counts.py counts this function by its name.
  [[gnu::noinline]] uint64_t move(size_t count) {
    const uint64_t before = nics_[0]->counters().data_packets_sent;
    const WorkRequest write{.local = memory_[0].data(),
                            .remote = regions_[1].remote_address,
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
  void hand_over(size_t from) {
    const size_t count = nics_[from]->poll_transmit(now_, packets_);
    const size_t arrived = wire_.carry(from, std::span(packets_).first(count), received_, now_);
    nics_[1 - from]->on_packets(now_, std::span(received_).first(arrived));
  }

  Wire& wire_;
  Prng random_{1};
  Instant now_ = Instant::from_ns(1'000'000);
  std::array<std::vector<uint8_t>, 2> memory_;
  std::array<std::unique_ptr<SoftNic>, 2> nics_;
  std::array<QueuePairId, 2> ends_{};
  std::array<MemoryRegion, 2> regions_;
  std::array<TxPacket, Wire::kBurst> packets_;
  std::array<RxPacket, Wire::kBurst> received_;
};

// The argument of the programs for instruction_counts.py; 0, with a message, if it is no number.
inline uint64_t packets_to_move(int argc, char** argv) {
  const uint64_t packets = argc == 2 ? std::strtoull(argv[1], nullptr, 10) : 0;
  if (packets == 0) std::fprintf(stderr, "usage: %s PACKETS\n", argv[0]);
  return packets;
}

// Moves at least so many packets, by writes of 1 MiB.
inline constexpr Bytes kCostMtu = 4096;
inline bool move_packets(uint64_t packets, Wire& wire) {
  constexpr Bytes kWriteBytes = 1 << 20;
  NicPair pair(kCostMtu, kWriteBytes, wire);
  return pair.move((packets * kCostMtu + kWriteBytes - 1) / kWriteBytes) >= packets;
}

}  // namespace pacecar
