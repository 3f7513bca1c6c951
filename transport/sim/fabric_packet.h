// A packet inside a simulated fabric, and lists of them. A packet is in exactly one place: a queue,
// a cable, an inbox, with the faults that delay it, or with the reader.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>

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
  uint32_t wire_bytes = 0;    // what it costs on a cable
  uint32_t payload_bytes = 0;
  uint16_t header_bytes = 0;
  uint16_t trailer_bytes = 0;
  uint16_t path = 0;
  PacketKind kind = PacketKind::kData;
  Ecn ecn = Ecn::kNotCapable;
  uint8_t hops = 0;                 // telemetry records
  bool whole : 1 = false;           // is dropped rather than trimmed
  bool large : 1 = false;           // PacketStore's: what its memory is
  uint8_t source_process = 0;       // of its host
  uint8_t destination_process = 0;  // likewise
  LinkId came_by = 0;               // the last link that it arrived on

  bool is_data() const { return kind == PacketKind::kData; }
  // A pause frame is no packet of a host.
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

}  // namespace pacecar
