// A packet inside a simulated fabric, and lists of packets. A packet is in exactly one place: a
// queue, a cable, an inbox, with the faults that delay it, or with the reader. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "transport/base/fresh_pages.h"
#include "transport/base/telemetry.h"
#include "transport/base/units.h"
#include "transport/sim/topology.h"
#include "transport/wire/packet.h"

namespace pacecar {

enum class PacketKind : uint8_t { kData, kControl, kTrimmed, kTrimmedInCore, kPause, kResume };

// One cache line, because every hop touches it.
struct alignas(64) FabricPacket {
  FabricPacket* next = nullptr;
  uint8_t* memory = nullptr;  // header, payload (when carried), trailer
  Instant arrival;            // of the last bit at the far end of the cable
  uint64_t flow_hash = 0;     // of source, destination and path
  uint32_t source = 0;        // host
  uint32_t destination = 0;   // host; the number of hosts for an unknown address
  uint32_t wire_bytes = 0;    // the bytes that it takes on a cable
  uint32_t payload_bytes = 0;
  uint16_t header_bytes = 0;
  uint16_t trailer_bytes = 0;
  uint16_t path = 0;
  PacketKind kind = PacketKind::kData;
  Ecn ecn = Ecn::kNotCapable;
  uint8_t hops = 0;                 // telemetry records
  bool whole : 1 = false;           // is dropped rather than trimmed
  bool large : 1 = false;           // by PacketStore: the size class of its memory
  uint8_t source_process = 0;       // of its host
  uint8_t destination_process = 0;  // of its host
  LinkId came_by = 0;               // the last link that it arrived on

  bool is_data() const { return kind == PacketKind::kData; }
  // A pause frame is not a packet of a host.
  bool is_pause() const { return kind == PacketKind::kPause || kind == PacketKind::kResume; }
};
static_assert(sizeof(FabricPacket) == 64);

// First in, first out.
class PacketList {
 public:
  bool empty() const { return first_ == nullptr; }
  FabricPacket& front() const { return *first_; }
  FabricPacket& back() const { return *last_; }

  void push(FabricPacket& packet) {
    packet.next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = &packet;
    last_ = &packet;
  }
  FabricPacket& pop() {
    FabricPacket& packet = *first_;
    first_ = packet.next;
    return packet;
  }
  template <typename Condition>
  size_t count_if(Condition condition) const {
    size_t count = 0;
    for (const FabricPacket* packet = first_; packet != nullptr; packet = packet->next) {
      if (condition(*packet)) ++count;
    }
    return count;
  }
  size_t count() const {
    return count_if([](const FabricPacket&) { return true; });
  }

 private:
  FabricPacket* first_ = nullptr;
  FabricPacket* last_ = nullptr;  // means nothing when empty
};

// A fabric's packets and their memory: made in chunks when needed, and used again, last in first
// out. Addresses never change. A packet's bytes lie behind it, so that both come into the cache
// together; most packets are a header and the length of a payload, and have little memory.
class PacketStore {
 public:
  // `bytes` is the most that is held of a packet; with telemetry, records of its hops come on top.
  PacketStore(Bytes bytes, bool telemetry)
      : telemetry_bytes_(telemetry ? whole_lines(kMaxTelemetryHops * sizeof(TelemetryHop)) : 0) {
    const size_t fixed = sizeof(FabricPacket) + telemetry_bytes_;
    pools_[0].packet_bytes = fixed + kSmallBytes;
    pools_[1].packet_bytes = fixed + whole_lines(bytes);
  }

  // A packet with room for this many bytes; its fields have the values of its last use.
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

  // Packets of one size, each with its telemetry and its bytes.
  struct Pool {
    size_t packet_bytes = 0;
    FabricPacket* free = nullptr;
    uint8_t* next = nullptr;  // first never used packet in the newest chunk
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
