// DatagramEnd: an open queue pair of UD on a software NIC. Datagrams are not paced: there are no
// acknowledgements from which a rate could be learnt. Thread rule: one owner.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "transport/softnic/datagram/datagrams.h"
#include "transport/softnic/nic_core.h"
#include "transport/softnic/roce_packets.h"

namespace pacecar {

class DatagramEnd;

// What all such ends of a NIC share.
struct DatagramShared {
  DatagramShared(NicCore& nic, RocePackets& roce_packets)
      : core(nic), packets(roce_packets), ends(nic.queue_pairs.size()) {}

  // The number by which peers address queue pair 1 of this NIC; no other queue pair has it.
  uint32_t general_services_number() const {
    return roce::general_services_of(core.config.port_slot.value_or(0));
  }
  DatagramEnd* find(uint32_t number) const;  // The open end with this number; null: there is none.

  NicCore& core;
  RocePackets& packets;
  std::vector<DatagramEnd*> ends;               // by slot
  std::optional<QueuePairId> general_services;  // which queue pair that is
};

class DatagramEnd final : public QueuePairEnd {
 public:
  static void open(DatagramShared& shared, QueuePair& qp, uint32_t queue_key);
  ~DatagramEnd() override { shared_.ends[qp_.slot] = nullptr; }
  DatagramEnd(const DatagramEnd&) = delete;
  DatagramEnd& operator=(const DatagramEnd&) = delete;

  size_t post_datagrams(std::span<const Datagram> datagrams);
  size_t transmit_control(Instant now, std::span<TxPacket> out) override;
  StandardRest take_back() override { return {.done = datagrams_.done()}; }
  void set_rights(const StandardRights& rights) override {
    datagrams_.set_queue_key(rights.queue_key);
  }
  void on_packet(const RxPacket& packet, const roce::Packet& datagram);  // Its ICRC is right.
  const QueuePair& queue_pair() const { return qp_; }

 private:
  DatagramEnd(DatagramShared& shared, QueuePair& qp, const Datagrams::Config& config)
      : shared_(shared), qp_(qp), datagrams_(config) {
    shared_.ends[qp.slot] = this;
  }
  void complete();

  DatagramShared& shared_;
  QueuePair& qp_;
  Datagrams datagrams_;
};

}  // namespace pacecar
