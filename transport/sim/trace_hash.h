// TraceHash: a running hash over the events in a fabric. Two runs with equal hashes had the same
// events in the same order. It detects accidents, not forgery.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "transport/sim/fabric_packet.h"

namespace pacecar {

class TraceHash {
 public:
  enum class Event : uint8_t { kSent, kDuplicated, kCorrupted, kArrived, kDelivered, kDropped };

  uint64_t value() const { return hash_; }

  void add(uint64_t word) {
    hash_ = (hash_ ^ word) * 0x9E3779B97F4A7C15U;  // odd, so no information is lost
    hash_ ^= hash_ >> 32U;
  }
  void add(Event event, Instant now, const FabricPacket& packet, uint64_t detail = 0) {
    add(static_cast<uint64_t>(now.ns()) << 4U | static_cast<uint64_t>(event));
    add(packet.flow_hash ^ detail << 32U);
    add(uint64_t{packet.wire_bytes} << 8U | static_cast<uint64_t>(packet.ecn));
  }
  // Adds only the bytes of a packet that identify queue pair and packet: later bytes may be memory
  // addresses, which differ from run to run.
  void add_head(std::span<const uint8_t> bytes) {
    constexpr size_t kTransportHeader = 12;
    std::array<uint64_t, 2> head{};
    std::memcpy(head.data(), bytes.data(), std::min(bytes.size(), kTransportHeader));
    add(head[0]);
    add(head[1]);
  }

 private:
  uint64_t hash_ = 0;
};

}  // namespace pacecar
