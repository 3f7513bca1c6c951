// The packets of a simulated fabric and their memory: made in chunks as they are needed and used
// again, the last one given back first. Addresses never change. A packet's bytes lie behind it, so
// that both come into the cache together; most packets are a header and the length of a payload,
// and have little memory. Thread rule: one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "transport/base/fresh_pages.h"
#include "transport/base/telemetry.h"
#include "transport/base/units.h"
#include "transport/sim/fabric_packet.h"

namespace pacecar {

class PacketStore {
 public:
  // `bytes` is the most that is held of a packet; with telemetry, records of its hops come on top.
  PacketStore(Bytes bytes, bool telemetry)
      : telemetry_bytes_(telemetry ? whole_lines(kMaxTelemetryHops * sizeof(TelemetryHop)) : 0) {
    const size_t fixed = sizeof(FabricPacket) + telemetry_bytes_;
    pools_[0].packet_bytes = fixed + kSmallBytes;
    pools_[1].packet_bytes = fixed + whole_lines(bytes);
  }

  // A packet with room for so many bytes; its fields are those of its last use.
  FabricPacket& take(Bytes bytes) {
    Pool& pool = pools_[bytes > kSmallBytes ? 1 : 0];
    if (pool.free == nullptr) add_one(pool);
    FabricPacket& packet = *pool.free;
    pool.free = packet.next;
    ++in_use_;
    return packet;
  }
  void give_back(FabricPacket& packet) {
    Pool& pool = pools_[packet.large ? 1 : 0];
    packet.next = pool.free;
    pool.free = &packet;
    --in_use_;
  }
  size_t in_use() const { return in_use_; }

  // Room for kMaxTelemetryHops records; only with telemetry.
  TelemetryHop* telemetry(const FabricPacket& packet) const {
    return reinterpret_cast<TelemetryHop*>(packet.memory - telemetry_bytes_);
  }

 private:
  static constexpr Bytes kSmallBytes = 64;
  static constexpr size_t kChunk = 1024;  // packets

  // Of one size: the packet, its telemetry, its bytes.
  struct Pool {
    size_t packet_bytes = 0;
    FabricPacket* free = nullptr;
    uint8_t* next = nullptr;  // of the newest chunk what has never been used
    size_t left = 0;          // packets there
  };

  static size_t whole_lines(size_t bytes) {
    constexpr size_t kLine = alignof(FabricPacket);
    return (bytes + kLine - 1) / kLine * kLine;
  }
  void add_one(Pool& pool) {
    if (pool.left == 0) {
      pool.next = chunks_.emplace_back(make_fresh_pages(kChunk * pool.packet_bytes)).get();
      pool.left = kChunk;
    }
    auto* const packet = new (pool.next) FabricPacket();
    packet->memory = pool.next + sizeof(FabricPacket) + telemetry_bytes_;
    packet->large = &pool == &pools_[1];
    pool.next += pool.packet_bytes;
    --pool.left;
    pool.free = packet;
  }

  size_t telemetry_bytes_;
  std::array<Pool, 2> pools_;  // small ones, and large ones
  size_t in_use_ = 0;
  std::vector<FreshPages> chunks_;
};

}  // namespace pacecar
