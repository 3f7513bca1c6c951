#include "transport/sim/packet_store.h"

#include <new>

namespace pacecar {
namespace {

size_t whole_lines(size_t bytes) {
  constexpr size_t kLine = alignof(FabricPacket);
  return (bytes + kLine - 1) / kLine * kLine;
}

}  // namespace

PacketStore::PacketStore(Bytes bytes, bool telemetry)
    : telemetry_bytes_(telemetry ? whole_lines(kMaxTelemetryHops * sizeof(TelemetryHop)) : 0) {
  const size_t fixed = sizeof(FabricPacket) + telemetry_bytes_;
  pools_[0].packet_bytes = fixed + kSmallBytes;
  pools_[1].packet_bytes = fixed + whole_lines(bytes);
}

void PacketStore::add_one(Pool& pool) {
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

}  // namespace pacecar
