// ExtendedReceiver: packets of extended mode that arrive at a software NIC. They are untrusted
// until queue pair, source and trailer have been checked.
// Bounded; allocates once. Thread rule: one owner.
#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "transport/softnic/extended/extended_end.h"
#include "transport/wire/extended.h"

namespace pacecar {

class ExtendedReceiver {
 public:
  // `on_other` takes packets that are not of extended mode. All outlive the receiver.
  using OnOther = std::function<void(Instant now, const RxPacket& packet)>;
  ExtendedReceiver(ExtendedShared& shared, OnOther on_other);

  void on_packets(Instant now, std::span<const RxPacket> packets);
  bool any_refusals() const { return !refusals_.empty(); }
  size_t transmit_refusals(std::span<TxPacket> out);

 private:
  ExtendedEnd* find(uint32_t queue_pair) const;
  ExtendedEnd* find_sender(const RxPacket& packet, uint32_t queue_pair);
  [[gnu::noinline]] void split_datagram(Instant now, const RxPacket& datagram);
  // Whether a packet is from the peer, intact and new. If not, it is counted as dropped. If
  // payloads are encrypted, their plaintext is placed in opened_.
  bool verify(ExtendedEnd& end, std::span<const uint8_t> packet, size_t header_bytes) {
    if (end.guard() != nullptr) return verify_tag(*end.guard(), packet, header_bytes);
    if (wire::verify_checksum(packet, header_bytes, end.coverage())) return true;
    ++core_.counters.bad_checksum;
    return false;
  }
  [[gnu::noinline]] bool verify_tag(PacketGuard& guard, std::span<const uint8_t> packet,
                                    size_t header_bytes);
  // Returns the end if other packets of the same write may follow.
  ExtendedEnd* on_data(Instant now, const RxPacket& packet);
  size_t on_same_write(Instant now, ExtendedEnd& end, const RxPacket& first,
                       std::span<const RxPacket> packets);
  ExtendedEnd* place(ExtendedEnd& end, Instant now, const Responder::Data& data);
  bool count_placed(ExtendedEnd& end, const Responder::Data& data);
  bool after_pause(ExtendedEnd& end, const Responder::Data& data) const;
  void report_arrival(FlowId flow, const Responder::Data& data);
  void refuse(const QueuePair& qp, const wire::DataHeader& header, wire::Syndrome syndrome,
              uint32_t psn);
  void on_trimmed(Instant now, const RxPacket& packet);
  void on_ack(Instant now, const RxPacket& packet);
  void on_nak(Instant now, const RxPacket& packet);

  ExtendedShared& shared_;
  NicCore& core_;
  const OnOther on_other_;
  const bool answers_pauses_;  // AckPolicy::idle is a limit
  // NAKs to send; NAKs beyond the capacity are lost, as in the network.
  FixedQueue<std::pair<QueuePairId, wire::Nak>> refusals_;
  std::vector<uint8_t> opened_;  // plaintext of the newest payload
};

}  // namespace pacecar
