#include "transport/softnic/datagram/datagrams.h"

#include <algorithm>
#include <array>

#include "transport/base/seq.h"
#include "transport/wire/big_endian.h"
#include "transport/wire/icrc.h"

namespace pacecar {
namespace {

// The checksum of an IPv4 header whose checksum field is 0.
uint16_t ip_checksum(std::span<const uint8_t> header) {
  uint32_t sum = 0;
  for (size_t i = 0; i < header.size(); i += 2) sum += wire::load_be16(&header[i]);
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

using Grh = std::array<uint8_t, roce::kGrhBytes>;

// The GRH of RoCE v2 (annex A17): the IP header; an IPv4 one is at its end.
Grh grh_of(const Address& source, const Address& destination, size_t datagram_bytes) {
  Grh grh{};
  const roce::Route route{source, destination, kIpv4Unidentified};
  const size_t size = roce::write_ip_header(route, datagram_bytes, grh.data());
  if (size == grh.size()) return grh;
  std::rotate(grh.begin(), grh.begin() + static_cast<ptrdiff_t>(size), grh.end());
  const auto header = std::span(grh).last(size);
  wire::store_be16(ip_checksum(header), &header[10]);
  return grh;
}

}  // namespace

Datagrams::Datagrams(const Config& config)
    : config_(config), psn_(config.first_psn), pending_(config.work_requests) {}

size_t Datagrams::post(std::span<const Datagram> datagrams) {
  size_t taken = 0;
  for (const Datagram& datagram : datagrams) {
    const Address destination{
        .ip = datagram.gid,
        .scope_id = config_.scope_id,
        .port = config_.ports_by_number ? roce::port_of(datagram.queue_pair) : roce::kUdpPort};
    if (!pending_.push(Pending{.datagram = datagram, .destination = destination})) break;
    ++taken;
  }
  return taken;
}

bool Datagrams::next_packet(const MemoryTable& memory, Outgoing* out) {
  while (sent_ < pending_.size()) {
    Pending& next = pending_[sent_++];
    const Datagram& datagram = next.datagram;
    const WorkRequest& send = datagram.send;
    next.failed = send.length > 0 && !memory.covers(send.local_key, send.local, send.length);
    if (next.failed) continue;
    const bool immediate = send.opcode == Opcode::kSendWithImm;
    out->packet =
        roce::Packet{.opcode = immediate ? roce::Opcode::kUdSendOnlyImm : roce::Opcode::kUdSendOnly,
                     .solicited = send.solicited,
                     .destination_qp = datagram.queue_pair,
                     .psn = psn_++ & static_cast<uint32_t>(kPsnMask),
                     .immediate = immediate ? send.immediate : 0,
                     .queue_key = datagram.queue_key,
                     .source_qp = config_.queue_pair,
                     .payload = {send.local, send.length}};
    out->destination = &next.destination;
    return true;
  }
  return false;
}

bool Datagrams::pop_done(WorkRequest* send, CompletionStatus* status) {
  if (done_ == 0) return false;
  const Pending& oldest = pending_.front();
  *send = oldest.datagram.send;
  *status = oldest.failed ? CompletionStatus::kMemoryGone : CompletionStatus::kOk;
  pending_.pop_front();
  ++popped_;
  --done_;
  --sent_;
  return true;
}

bool Datagrams::place(const Address& source, const Address& destination, const roce::Packet& packet,
                      const ReceiveRequest& receive, const MemoryTable& memory) {
  const Bytes bytes = roce::kGrhBytes + packet.payload.size();
  if (bytes > receive.length) return false;
  if (!memory.owner_may_write(receive.local_key, receive.local, bytes)) return false;
  const size_t datagram_bytes = roce::header_bytes(packet.opcode) + packet.payload.size() +
                                roce::trailer_bytes(packet.payload.size());
  std::ranges::copy(grh_of(source, destination, datagram_bytes), receive.local);
  std::ranges::copy(packet.payload, receive.local + roce::kGrhBytes);
  return true;
}

}  // namespace pacecar
