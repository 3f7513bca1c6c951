// Standard RC for SoftNicPair's two software NICs, and forged packets with a correct ICRC.
#pragma once

#include <vector>

#include "tests/support/soft_nic_pair.h"
#include "transport/wire/checksum.h"
#include "transport/wire/icrc.h"
#include "transport/wire/roce.h"

namespace pacecar::test {

inline SoftNicConfig rc_config(WireMode mode = WireMode::kRoce) {
  SoftNicConfig config = SoftNicPair::default_config();
  config.wire_mode = mode;
  config.source_ports = {roce::kUdpPort, roce::kUdpPort};  // as SoftNicPair delivers
  return config;
}

// The packet as side `from` would send it.
inline Datagram forge(size_t from, const roce::Packet& packet) {
  Datagram datagram;
  datagram.bytes.resize(roce::header_bytes(packet.opcode));
  roce::encode(packet, datagram.bytes);
  datagram.bytes.insert(datagram.bytes.end(), packet.payload.begin(), packet.payload.end());
  datagram.bytes.resize(datagram.bytes.size() + roce::pad_bytes(packet.payload.size()));
  const Address source = test_address(static_cast<uint8_t>(from + 1));
  const Address destination = test_address(static_cast<uint8_t>(2 - from));
  const uint32_t sum = roce::icrc({source, destination}, datagram.bytes, {}, {});
  datagram.bytes.resize(datagram.bytes.size() + roce::kIcrcBytes);
  wire::store_checksum(sum, std::span(datagram.bytes).last<roce::kIcrcBytes>());
  return datagram;
}

inline roce::Packet parse(const Datagram& datagram) {
  roce::Packet packet;
  PACECAR_CHECK(roce::decode(datagram.bytes, packet) == roce::Decoded::kOk);
  return packet;
}

inline RcLane lane_of(SoftNicPair& pair, size_t side, QueuePairId id) {
  return decode_rc_endpoint(pair.nic(side).queue_pair_address(id).view()).value().lane[0];
}

}  // namespace pacecar::test
