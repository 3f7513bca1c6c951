#include "transport/io/switch_traces.h"

#include "transport/wire/extended.h"
#include "transport/wire/telemetry_tail.h"

namespace pacecar {

void SwitchTraces::read(std::span<RxPacket> packets) {
  used_ = 0;
  for (RxPacket& packet : packets) {
    if (wire::classify(packet.bytes) != wire::PacketKind::kData) continue;
    // A packet that was not trimmed has a checksum after its header.
    if (packet.bytes.size() == wire::kDataHeaderBytes) {
      packet.trimmed = true;
    } else {
      read_telemetry(packet, packets.size());
    }
  }
}

void SwitchTraces::read_telemetry(RxPacket& packet, size_t most) {
  const size_t bytes = wire::find_telemetry_tail(packet.bytes);
  if (bytes == 0) return;
  if (hops_.size() < most) hops_.resize(most);  // before pointers into it are given out
  auto& hops = hops_[used_++];
  const size_t count = wire::decode_telemetry_tail(packet.bytes.last(bytes), hops);
  packet.bytes = packet.bytes.first(packet.bytes.size() - bytes);
  packet.telemetry = std::span(hops).first(count);
}

}  // namespace pacecar
