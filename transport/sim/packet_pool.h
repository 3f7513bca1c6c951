// Memory of the packets inside a simulated network: a fixed number of slots of a fixed size.
// Invariant: a slot is either free or held by exactly one place (an event, an inbox, a reader).
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/base/check.h"
#include "transport/base/units.h"
#include "transport/wire/packet.h"

namespace pacecar {

using PacketSlot = uint32_t;

struct SimPacket {
  size_t size = 0;         // bytes
  size_t source = 0;       // port index
  uint16_t path = 0;       // of the source
  size_t destination = 0;  // port index; the number of ports or more for an unknown address
  Ecn ecn = Ecn::kNotCapable;
};

class PacketPool {
 public:
  PacketPool(size_t slots, Bytes slot_bytes)
      : slot_bytes_(slot_bytes), memory_(slots * slot_bytes), packets_(slots) {
    free_.reserve(slots);
    for (size_t i = slots; i > 0; --i) free_.push_back(static_cast<PacketSlot>(i - 1));
  }

  Bytes slot_bytes() const { return slot_bytes_; }
  size_t in_use() const { return packets_.size() - free_.size(); }
  bool exhausted() const { return free_.empty(); }

  std::optional<PacketSlot> take() {
    if (free_.empty()) return std::nullopt;
    const PacketSlot slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void give_back(PacketSlot slot) {
    PACECAR_CHECK(free_.size() < packets_.size());
    free_.push_back(slot);
  }

  SimPacket& packet(PacketSlot slot) { return packets_[slot]; }
  // The packet's bytes.
  std::span<uint8_t> bytes(PacketSlot slot) {
    return std::span(memory_).subspan(slot * slot_bytes_, packets_[slot].size);
  }

 private:
  Bytes slot_bytes_;
  std::vector<uint8_t> memory_;
  std::vector<SimPacket> packets_;
  std::vector<PacketSlot> free_;
};

}  // namespace pacecar
