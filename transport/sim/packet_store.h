// The packets of a simulated fabric and their memory: slots of one size that are made in chunks as
// they are needed and used again, the last one given back first. Addresses never change.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/base/telemetry.h"
#include "transport/base/units.h"
#include "transport/sim/fabric_packet.h"

namespace pacecar {

class PacketStore {
 public:
  // `bytes` is what a slot holds of a packet; with telemetry, records of its hops come on top.
  PacketStore(Bytes bytes, bool telemetry);

  FabricPacket& take() {
    if (free_ == nullptr) grow();
    FabricPacket& packet = *free_;
    free_ = packet.next;
    ++in_use_;
    return packet;
  }
  void give_back(FabricPacket& packet) {
    packet.next = free_;
    free_ = &packet;
    --in_use_;
  }
  size_t in_use() const { return in_use_; }

  // Room for kMaxTelemetryHops records; only with telemetry.
  TelemetryHop* telemetry(const FabricPacket& packet) const {
    return reinterpret_cast<TelemetryHop*>(packet.memory + telemetry_offset_);
  }

 private:
  static constexpr size_t kChunk = 1024;  // packets

  void grow();

  size_t telemetry_offset_;
  size_t slot_bytes_;
  FabricPacket* free_ = nullptr;
  size_t in_use_ = 0;
  std::vector<std::unique_ptr<FabricPacket[]>> packets_;
  std::vector<std::unique_ptr<uint8_t[]>> memory_;
};

}  // namespace pacecar
