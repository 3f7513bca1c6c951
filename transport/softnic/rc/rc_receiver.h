// RcReceiver: packets of RoCE v2 that arrive at a software NIC, of connections and datagrams. They
// are untrusted until queue pair, source and ICRC have been checked. Thread rule: one owner.
#pragma once

#include "transport/softnic/datagram/datagram_end.h"
#include "transport/softnic/rc/rc_end.h"

namespace pacecar {

class RcReceiver {
 public:
  // Both outlive it.
  RcReceiver(RcShared& shared, DatagramShared& datagrams)
      : shared_(shared), datagrams_(datagrams) {}

  // Packets of no known kind are counted as malformed.
  void on_packet(Instant now, const RxPacket& packet);

 private:
  RcEnd* find_end(const RxPacket& packet, const roce::Packet& decoded);
  void on_datagram(const RxPacket& packet, const roce::Packet& datagram);

  RcShared& shared_;
  DatagramShared& datagrams_;
};

}  // namespace pacecar
