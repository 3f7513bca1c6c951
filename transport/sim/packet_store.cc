#include "transport/sim/packet_store.h"

namespace pacecar {
namespace {

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

PacketStore::PacketStore(Bytes bytes, bool telemetry)
    : telemetry_offset_(round_up(bytes, sizeof(TelemetryHop))),
      slot_bytes_(telemetry_offset_ + (telemetry ? kMaxTelemetryHops * sizeof(TelemetryHop) : 0)) {}

void PacketStore::grow() {
  auto& packets = packets_.emplace_back(std::make_unique<FabricPacket[]>(kChunk));
  auto& memory =
      memory_.emplace_back(std::make_unique_for_overwrite<uint8_t[]>(kChunk * slot_bytes_));
  for (size_t i = kChunk; i > 0; --i) {
    packets[i - 1].memory = memory.get() + (i - 1) * slot_bytes_;
    packets[i - 1].next = free_;
    free_ = &packets[i - 1];
  }
}

}  // namespace pacecar
