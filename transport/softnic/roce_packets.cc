#include "transport/softnic/roce_packets.h"

#include <algorithm>

#include "transport/wire/checksum.h"

namespace pacecar {

RocePackets::RocePackets(NicCore& core) : core_(core) {
  PACECAR_CHECK(!core.speaks_standard() ||
                core.config.source_ports.size() == core.config.paths + 1);
}

TxPacket RocePackets::write(const Address& destination, const roce::Packet& packet, uint16_t path,
                            TrafficClass traffic_class) {
  const SoftNicConfig& config = core_.config;
  const auto header = core_.slab.take(roce::header_bytes(packet.opcode));
  const auto trailer = core_.slab.take(roce::trailer_bytes(packet.payload.size()));
  roce::encode(packet, header);
  const auto padding = trailer.first(trailer.size() - roce::kIcrcBytes);
  std::ranges::fill(padding, uint8_t{0});
  Address source = config.address;
  const bool control = traffic_class == TrafficClass::kControl;
  source.port = config.source_ports[control ? config.paths : path];
  const uint32_t fragment = config.identifies_datagrams ? kIpv4Unidentified : kIpv4Fragment;
  wire::store_checksum(roce::icrc({source, destination, fragment}, header, packet.payload, padding),
                       trailer.last<roce::kIcrcBytes>());
  return {.header = header,
          .payload = packet.payload,
          .trailer = trailer,
          .destination = &destination,
          .path = control ? uint16_t{0} : path,
          .traffic_class = traffic_class};
}

bool RocePackets::verify_icrc(const RxPacket& packet) {
  const SoftNicConfig& config = core_.config;
  const roce::Route route{*packet.source, config.address, packet.ipv4_fragment};
  if (config.identifies_datagrams ? roce::verify_icrc(route, packet.bytes, identifications_)
                                  : roce::verify_icrc(route, packet.bytes)) {
    return true;
  }
  ++core_.counters.bad_checksum;
  return false;
}

uint16_t RocePackets::port_of(uint32_t queue_pair) const {
  return core_.config.port_slot ? roce::port_of(queue_pair) : roce::kUdpPort;
}

}  // namespace pacecar
