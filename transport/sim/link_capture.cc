#include "transport/sim/link_capture.h"

#include <array>
#include <span>

#include "transport/sim/host_port.h"

namespace pacecar {

void LinkCapture::record(Instant now, const FabricPacket& packet) {
  const std::span header(packet.memory, packet.header_bytes);
  const uint8_t* behind = packet.memory + packet.header_bytes;
  const bool kept = carries_payload_ || packet.kind == PacketKind::kControl;
  const std::span payload(kept ? behind : zeros_.data(), packet.payload_bytes);
  const std::span trailer(kept ? behind + packet.payload_bytes : behind, packet.trailer_bytes);
  const std::array<std::span<const uint8_t>, 3> parts = {header, payload, trailer};
  const uint32_t source = packet.source * processes_ + packet.source_process;
  const uint32_t destination = packet.destination * processes_ + packet.destination_process;
  writer_.write(now,
                {process_address(source, packet.path), process_address(destination, 0), packet.ecn},
                parts);
}

}  // namespace pacecar
