// RocePackets: packets of RoCE v2, out and in: headers, ICRC and UDP ports. Thread rule: one owner.
#pragma once

#include "transport/softnic/nic_core.h"
#include "transport/wire/icrc.h"
#include "transport/wire/roce.h"

namespace pacecar {

class RocePackets {
 public:
  static constexpr size_t kMaxOverheadBytes = roce::kMaxHeaderBytes + roce::kMaxTrailerBytes;

  explicit RocePackets(NicCore& core);

  // The packet, with its headers in the slab, which has kMaxOverheadBytes.
  TxPacket write(const Address& destination, const roce::Packet& packet, uint16_t path,
                 TrafficClass traffic_class);
  bool verify_icrc(const RxPacket& packet);     // A wrong ICRC is counted.
  uint16_t port_of(uint32_t queue_pair) const;  // The UDP port of a peer's queue pair.

 private:
  NicCore& core_;
  roce::IdentificationEffects identifications_;
};

}  // namespace pacecar
