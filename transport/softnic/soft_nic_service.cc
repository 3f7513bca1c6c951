// The part of SoftNic for programs that bring up connections of standard RC themselves
// (Service::kStandard), for shared receive queues, and for datagrams (UD).
#include <algorithm>

#include "transport/base/check.h"
#include "transport/base/seq.h"
#include "transport/softnic/soft_nic.h"
#include "transport/wire/address.h"

namespace pacecar {

Result<ReceiveQueueId> SoftNic::create_receive_queue(uint32_t receives) {
  const auto free = std::find(receive_queues_.begin(), receive_queues_.end(), nullptr);
  if (free == receive_queues_.end()) {
    return fail(ErrorCode::kUnavailable, "all shared receive queues of the NIC are used");
  }
  *free = std::make_unique<FixedQueue<ReceiveRequest>>(receives);
  return static_cast<ReceiveQueueId>(free - receive_queues_.begin());
}

size_t SoftNic::take_receives(FixedQueue<ReceiveRequest>& queue,
                              std::span<const ReceiveRequest> requests) const {
  size_t taken = 0;
  for (const ReceiveRequest& request : requests) {
    PACECAR_CHECK(request.length == 0 ||
                  memory_.owner_may_write(request.local_key, request.local, request.length));
    if (!queue.push(request)) break;
    ++taken;
  }
  return taken;
}

bool SoftNic::reaches(const std::array<uint8_t, 16>& gid) const {
  return is_ipv4(Address{.ip = gid}) == is_ipv4(config_.address);
}

uint16_t SoftNic::peer_port(uint32_t queue_pair) const {
  return config_.port_slot ? roce::port_of(queue_pair) : roce::kUdpPort;
}

Result<void> SoftNic::connect_standard(QueuePairId id, const StandardPeer& peer) {
  QueuePair* qp = find(id);
  PACECAR_CHECK(qp != nullptr && qp->state == QueuePair::State::kCreated);
  PACECAR_CHECK(qp->config.service == Service::kStandard && peer.flow < config_.flows);
  if (!reaches(peer.gid)) {
    return fail(ErrorCode::kInvalidArgument, "the peer's GID is of another IP version than ours");
  }
  qp->config.flow = peer.flow;
  qp->config.paced = true;
  qp->local.window_packets = window(qp->config);
  const uint32_t mtu = std::min(standard_mtu(config_.mtu), standard_mtu(peer.mtu));
  qp->remote = SoftEndpoint{.address = {.ip = peer.gid,
                                        .scope_id = config_.address.scope_id,
                                        .port = peer_port(peer.queue_pair)},
                            .queue_pair = peer.queue_pair,
                            .first_psn = peer.first_psn,
                            .mtu = mtu};
  open_connection(*qp, peer, 1);
  flows_.make(peer.flow + 1);
  flows_.join(peer.flow, slot_of(*qp));
  return {};
}

void SoftNic::start_sending(QueuePairId id, const StandardSending& sending) {
  QueuePair* qp = find(id);
  PACECAR_CHECK(qp != nullptr && qp->rc && qp->config.service == Service::kStandard);
  qp->rc->requester.start(sending, wide_psn(sending.first_psn));
}

// UC: work requests whose packets were sent before the last call are done.
void SoftNic::on_handed_over(QueuePair& qp) {
  const Bytes in_flight_before = qp.in_flight();
  on_progress(qp, in_flight_before, qp.rc->requester.on_handed_over());
  events_.add(slot_of(qp));
  if (!qp.rc->requester.idle()) controls_.add(slot_of(qp));
  wake(qp);
}

// Removes the queue pair from its flow and from all queues, so that it neither sends nor receives.
void SoftNic::detach(QueuePair& qp) {
  const uint32_t slot = slot_of(qp);
  for (WorkList* list : {&acks_, &later_, &controls_, &events_, &posted_}) list->remove(slot);
  timers_.cancel(slot);
  if (qp.responder) leave_siblings(qp);
  drop_standby(qp);
  ++invalidations_;
  if (!qp.config.paced) return;
  if (qp.state != QueuePair::State::kCreated) flows_[qp.config.flow].gate.on_done(qp.in_flight());
  flows_.leave(qp.config.flow, slot);
  flows_.ready().add(qp.config.flow);  // the others have more window now
}

void SoftNic::reset_queue_pair(QueuePairId id) {
  QueuePair* qp = find(id);
  PACECAR_CHECK(qp != nullptr && qp->config.service != Service::kConnected);
  detach(*qp);
  qp->config.paced = false;
  qp->receives.clear();
  qp->rc.reset();
  wake_readers();
  qp->datagrams.reset();
  qp->unacknowledged_bytes = 0;
  qp->unacknowledged_packets = 0;
  qp->state = QueuePair::State::kCreated;
  // Drop its completions of receives that were not polled, too.
  for (size_t left = received_.size(); left > 0; --left) {
    const Completion completion = received_.front();
    received_.pop_front();
    if (completion.queue_pair != id) received_.push(completion);
  }
}

void SoftNic::break_queue_pair(QueuePairId id) {
  QueuePair* qp = find(id);
  PACECAR_CHECK(qp != nullptr);
  break_queue_pair(*qp, CompletionStatus::kLocalError);
}

// --- UD ---

// next_number() never gives the number 1.
QueuePair* SoftNic::find_datagram_end(uint32_t number) {
  if (number != general_services()) return find_end(number);
  return general_services_ ? find(*general_services_) : nullptr;
}

void SoftNic::open_datagrams(QueuePairId id, uint32_t queue_key, uint32_t first_psn) {
  QueuePair* qp = find(id);
  PACECAR_CHECK(qp != nullptr && qp->config.service == Service::kDatagram);
  qp->datagrams = std::make_unique<Datagrams>(
      Datagrams::Config{.queue_pair = id == general_services_ ? general_services() : id,
                        .queue_key = queue_key,
                        .first_psn = first_psn,
                        .work_requests = qp->config.work_requests,
                        .scope_id = config_.address.scope_id,
                        .ports_by_number = config_.port_slot.has_value()});
  qp->state = QueuePair::State::kOpen;
}

size_t SoftNic::post_datagrams(QueuePairId id, std::span<const Datagram> datagrams) {
  QueuePair* qp = find(id);
  PACECAR_CHECK(qp != nullptr);
  if (qp->state != QueuePair::State::kOpen) return 0;
  for (const Datagram& datagram : datagrams) {
    const WorkRequest& send = datagram.send;
    PACECAR_CHECK(send.length <= config_.mtu);
    PACECAR_CHECK(send.length == 0 || memory_.covers(send.local_key, send.local, send.length));
  }
  const size_t taken = qp->datagrams->post(datagrams);
  if (taken > 0) controls_.add(slot_of(*qp));
  return taken;
}

// By now the packet I/O has the packets of the last call. Datagrams are not paced: there are no
// acknowledgements from which a rate could be learnt.
size_t SoftNic::transmit_datagrams(QueuePair& qp, std::span<TxPacket> out) {
  Datagrams& datagrams = *qp.datagrams;
  datagrams.on_handed_over();
  complete_datagrams(qp);
  size_t count = 0;
  Datagrams::Outgoing next;
  while (count < out.size() && slab_.room() >= roce::kMaxHeaderBytes + roce::kMaxTrailerBytes &&
         datagrams.next_packet(memory_, &next)) {
    out[count++] = standard_packet(*next.destination, next.packet, 0, TrafficClass::kData);
    ++counters_.data_packets_sent;
    counters_.data_bytes_sent += next.packet.payload.size();
  }
  if (!datagrams.idle()) controls_.add(slot_of(qp));
  return count;
}

void SoftNic::complete_datagrams(QueuePair& qp) {
  WorkRequest send;
  Completion completion{.queue_pair = qp.id, .kind = CompletionKind::kSent};
  while (!received_.full() && qp.datagrams->pop_done(&send, &completion.status)) {
    if (!send.signaled && completion.status == CompletionStatus::kOk) continue;
    completion.work_request = send.id;
    received_.push(completion);
  }
}

void SoftNic::on_datagram(const RxPacket& packet, const roce::Packet& datagram) {
  QueuePair* qp = find_datagram_end(datagram.destination_qp);
  if (qp == nullptr || qp->state != QueuePair::State::kOpen) {
    ++counters_.unknown_queue_pair;
    return;
  }
  if (!right_icrc(packet)) return;
  if (datagram.queue_key != qp->datagrams->queue_key()) {
    ++counters_.access_errors;
    return;
  }
  FixedQueue<ReceiveRequest>& receives = qp->receive_queue();
  if (received_.full() || receives.empty()) {
    ++counters_.completions_full;
    return;
  }
  const ReceiveRequest receive = receives.front();
  if (!Datagrams::place(*packet.source, config_.address, datagram, receive, memory_)) {
    ++counters_.access_errors;
    return;
  }
  receives.pop_front();
  ++counters_.data_packets_received;
  counters_.data_bytes_received += datagram.payload.size();
  received_.push(Completion{.work_request = receive.id,
                            .bytes = roce::kGrhBytes + datagram.payload.size(),
                            .queue_pair = qp->id,
                            .immediate = datagram.immediate,
                            .kind = CompletionKind::kReceivedSend,
                            .has_immediate = datagram.opcode == roce::Opcode::kUdSendOnlyImm,
                            .solicited = datagram.solicited,
                            .source_qp = datagram.source_qp});
}

}  // namespace pacecar
