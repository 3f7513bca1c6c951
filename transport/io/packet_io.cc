#include "transport/io/packet_io.h"

namespace pacecar {

std::vector<uint16_t> source_ports(const PacketIo& io) {
  std::vector<uint16_t> ports;
  for (uint32_t path = 0; path < io.caps().paths; ++path) {
    ports.push_back(io.source_port(static_cast<uint16_t>(path), TrafficClass::kData));
  }
  ports.push_back(io.source_port(0, TrafficClass::kControl));
  return ports;
}

uint8_t ip_traffic_class(uint32_t configured, TrafficClass traffic_class) {
  constexpr uint32_t kDscpMask = 0xFC;
  const Ecn ecn = traffic_class == TrafficClass::kData ? Ecn::kCapable0 : Ecn::kNotCapable;
  return static_cast<uint8_t>((configured & kDscpMask) | static_cast<uint32_t>(ecn));
}

}  // namespace pacecar
