#include "transport/io/dpdk/transmit_batch.h"

#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_mbuf.h>

#include <algorithm>
#include <cstring>

#include "transport/base/check.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

// A payload of up to this size is copied, as three segments cost more.
constexpr size_t kCopiedPayload = 256;
constexpr uint16_t kHeld = 2;  // references: one of the device, one of ours

uint8_t* append(uint8_t* to, std::span<const uint8_t> bytes) {
  if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
  return to + bytes.size();
}

// DPDK 22.11 computes a wrong checksum over segments at odd offsets (net_tap, and net_vhost for a
// guest that takes no unfinished checksums).
bool has_odd_piece(const TxPacket& packet) {
  return ((packet.header.size() | packet.payload.size()) & 1) != 0;
}

void hold(rte_mbuf& buffer) { rte_mbuf_refcnt_set(&buffer, kHeld); }

}  // namespace

TransmitBatch::TransmitBatch(DpdkPort& port, const Address& local, bool tagged) : port_(port) {
  if (!port.info().offloads_udp_checksums) return;
  const bool ipv4 = is_ipv4(local);
  checksum_flags_ = RTE_MBUF_F_TX_UDP_CKSUM | (ipv4 ? RTE_MBUF_F_TX_IPV4 : RTE_MBUF_F_TX_IPV6);
  header_lengths_ =
      rte_mbuf_tx_offload(RTE_ETHER_HDR_LEN + (tagged ? RTE_VLAN_HLEN : 0),
                          ipv4 ? sizeof(rte_ipv4_hdr) : sizeof(rte_ipv6_hdr), 0, 0, 0, 0, 0);
}

size_t TransmitBatch::take_prepared(size_t packets) {
  if (!prepared_) {
    prepared_ = true;
    for (auto* buffers : {&heads_, &payloads_, &trailers_}) {
      PACECAR_CHECK(rte_pktmbuf_alloc_bulk(&port_.transmit_pool(), buffers->data(), kBurst) == 0);
    }
  }
  for (size_t i = 0; i < packets; ++i) {
    hold(*heads_[i]);
    heads_[i]->next = nullptr;
    heads_[i]->nb_segs = 1;
  }
  return packets;
}

size_t TransmitBatch::begin(size_t packets) {
  count_ = 0;
  packets = std::min(packets, kBurst);
  if (port_.info().copies_on_send) return taken_ = take_prepared(packets);
  // All or none: the missing buffers are in packets that the device has not sent yet.
  const bool enough = rte_pktmbuf_alloc_bulk(&port_.transmit_pool(), heads_.data(),
                                             static_cast<unsigned>(packets)) == 0;
  return taken_ = enough ? packets : 0;
}

void TransmitBatch::append_piece(rte_mbuf& head, rte_mbuf*& last, rte_mbuf* piece,
                                 std::span<const uint8_t> bytes) {
  if (bytes.empty()) return;
  hold(*piece);
  piece->buf_addr = const_cast<uint8_t*>(bytes.data());
  piece->data_off = 0;
  piece->data_len = static_cast<uint16_t>(bytes.size());
  piece->next = nullptr;
  last->next = piece;
  last = piece;
  ++head.nb_segs;
  head.pkt_len += static_cast<uint32_t>(bytes.size());
}

void TransmitBatch::write_headers(const HeaderTemplate& headers, uint16_t source_port,
                                  const TxPacket& packet, uint8_t traffic_class) {
  headers.write(source_port, packet.destination->port, traffic_class, packet.size(),
                headers_.data());
  headers_size_ = headers.size();
}

void TransmitBatch::add(const TxPacket& packet) {
  rte_mbuf& head = *heads_[count_];
  auto* const start = rte_pktmbuf_mtod(&head, uint8_t*);
  std::memcpy(start, headers_.data(), headers_.size());
  uint8_t* end = append(start + headers_size_, packet.header);
  const bool whole = !port_.info().copies_on_send || packet.payload.size() <= kCopiedPayload ||
                     (checksum_flags_ != 0 && has_odd_piece(packet));
  if (whole) end = append(append(end, packet.payload), packet.trailer);
  head.data_len = static_cast<uint16_t>(end - start);
  head.pkt_len = head.data_len;
  if (!whole) {
    rte_mbuf* last = &head;
    append_piece(head, last, payloads_[count_], packet.payload);
    append_piece(head, last, trailers_[count_], packet.trailer);
  }
  ++count_;
}

// Requests checksums from the device; returns how many leading packets it can send with them.
size_t TransmitBatch::ask_for_checksums() {
  for (rte_mbuf* const head : std::span(heads_).first(count_)) {
    head->ol_flags = checksum_flags_;
    head->tx_offload = header_lengths_;
  }
  return rte_eth_tx_prepare(port_.info().id, 0, heads_.data(), static_cast<uint16_t>(count_));
}

size_t TransmitBatch::submit() {
  size_t sent = 0;
  if (count_ > 0) {
    const size_t ready = checksum_flags_ != 0 ? ask_for_checksums() : count_;
    sent = port_.send(std::span(heads_).first(ready));
  }
  if (!port_.info().copies_on_send && sent < taken_) {
    rte_pktmbuf_free_bulk(&heads_[sent], static_cast<unsigned>(taken_ - sent));
  }
  return sent;
}

void TransmitBatch::send_frame(std::span<const uint8_t> frame) {
  rte_mbuf* buffer = rte_pktmbuf_alloc(&port_.transmit_pool());
  if (buffer == nullptr) return;  // lost, and sent again later
  append(rte_pktmbuf_mtod(buffer, uint8_t*), frame);
  buffer->data_len = static_cast<uint16_t>(frame.size());
  buffer->pkt_len = buffer->data_len;
  if (port_.send({&buffer, 1}) == 0) rte_pktmbuf_free(buffer);
}

}  // namespace pacecar
