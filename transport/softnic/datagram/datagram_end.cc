#include "transport/softnic/datagram/datagram_end.h"

namespace pacecar {

DatagramEnd* DatagramShared::find(uint32_t number) const {
  if (number == general_services_number()) {
    if (!general_services) return nullptr;
    number = *general_services;
  }
  DatagramEnd* end = ends[core.slot_of(number)];
  if (end == nullptr || end->queue_pair().id != number) return nullptr;
  return end->queue_pair().state == QueuePair::State::kOpen ? end : nullptr;
}

void DatagramEnd::open(DatagramShared& shared, QueuePair& qp, uint32_t queue_key) {
  const SoftNicConfig& config = shared.core.config;
  const bool general_services = qp.id == shared.general_services;
  qp.end.reset(
      new DatagramEnd(shared, qp,
                      {.queue_pair = general_services ? shared.general_services_number() : qp.id,
                       .queue_key = queue_key,
                       .work_requests = qp.config.work_requests,
                       .scope_id = config.address.scope_id,
                       .ports_by_number = config.port_slot.has_value()}));
  qp.state = QueuePair::State::kOpen;
}

size_t DatagramEnd::post_datagrams(std::span<const Datagram> datagrams) {
  if (qp_.state != QueuePair::State::kOpen) return 0;
  for (const Datagram& datagram : datagrams) {
    PACECAR_CHECK(datagram.send.length <= shared_.core.config.mtu);
    shared_.core.check_memory(datagram.send);
  }
  const size_t taken = datagrams_.post(datagrams);
  if (taken > 0) shared_.core.scheduler.add_control(qp_);
  return taken;
}

// The packets of the last call have been handed over, so their work requests are done.
size_t DatagramEnd::transmit_control(Instant /*now*/, std::span<TxPacket> out) {
  NicCore& core = shared_.core;
  datagrams_.on_handed_over();
  complete();
  size_t count = 0;
  Datagrams::Outgoing next;
  while (count < out.size() && core.slab.room() >= RocePackets::kMaxOverheadBytes &&
         datagrams_.next_packet(core.memory, &next)) {
    out[count++] = shared_.packets.write(*next.destination, next.packet, 0, TrafficClass::kData);
    ++core.counters.data_packets_sent;
    core.counters.data_bytes_sent += next.packet.payload.size();
  }
  if (!datagrams_.idle()) core.scheduler.add_control(qp_);
  return count;
}

void DatagramEnd::complete() {
  FixedQueue<Completion>& received = shared_.core.received;
  WorkRequest send;
  Completion completion{.queue_pair = qp_.id, .kind = CompletionKind::kSent};
  while (!received.full() && datagrams_.pop_done(&send, &completion.status)) {
    if (!send.signaled && completion.status == CompletionStatus::kOk) continue;
    completion.work_request = send.id;
    received.push(completion);
  }
}

void DatagramEnd::on_packet(const RxPacket& packet, const roce::Packet& datagram) {
  NicCore& core = shared_.core;
  if (datagram.queue_key != datagrams_.queue_key()) {
    ++core.counters.access_errors;
    return;
  }
  FixedQueue<ReceiveRequest>& receives = qp_.receive_queue();
  if (core.received.full() || receives.empty()) {
    ++core.counters.completions_full;
    return;
  }
  const ReceiveRequest receive = receives.front();
  if (!Datagrams::place(*packet.source, core.config.address, datagram, receive, core.memory)) {
    ++core.counters.access_errors;
    return;
  }
  receives.pop_front();
  ++core.counters.data_packets_received;
  core.counters.data_bytes_received += datagram.payload.size();
  core.received.push(Completion{.work_request = receive.id,
                                .bytes = roce::kGrhBytes + datagram.payload.size(),
                                .queue_pair = qp_.id,
                                .immediate = datagram.immediate,
                                .kind = CompletionKind::kReceivedSend,
                                .has_immediate = datagram.opcode == roce::Opcode::kUdSendOnlyImm,
                                .solicited = datagram.solicited,
                                .source_qp = datagram.source_qp});
}

}  // namespace pacecar
