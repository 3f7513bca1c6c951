// ExtendedEnd: one end of a connection in extended mode: requester, responder and seals of its
// packets, and how it fills its turn. ExtendedReceiver gives it the received packets.
// The queue pairs with one peer's NIC are siblings: acknowledgements and control writes of one may
// travel with the data of another. Thread rule: one owner.
#pragma once

#include <algorithm>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "transport/softnic/extended/key_agreement.h"
#include "transport/softnic/extended/packet_guard.h"
#include "transport/softnic/extended/requester.h"
#include "transport/softnic/extended/responder.h"
#include "transport/softnic/nic_core.h"

namespace pacecar {

class ExtendedEnd;

// What all such ends of a NIC share.
struct ExtendedShared {
  explicit ExtendedShared(NicCore& core);

  // Without its trailer.
  std::span<const uint8_t> body_of(std::span<const uint8_t> packet) const {
    return packet.first(packet.size() < trailer_bytes ? 0 : packet.size() - trailer_bytes);
  }

  struct AddressHash {
    size_t operator()(const Address& address) const {
      const std::string_view ip(reinterpret_cast<const char*>(address.ip.data()),
                                address.ip.size());
      return std::hash<std::string_view>()(ip) ^ address.port;
    }
  };

  NicCore& core;
  KeyAgreement keys;
  const size_t trailer_bytes;
  const size_t overhead_bytes;  // of data packets: header and trailer
  const bool enciphers;
  const size_t slab_bytes;                                       // of a full data packet
  std::vector<ExtendedEnd*> ends;                                // by slot
  std::unordered_map<Address, ExtendedEnd*, AddressHash> peers;  // one of each peer's siblings
};

class ExtendedEnd final : public QueuePairEnd {
 public:
  // Connects a queue pair with the peer's end. Errors: kPeer.
  static Result<void> connect(ExtendedShared& shared, QueuePair& qp, const SoftEndpoint& remote);
  static QueuePairMemory memory(const ExtendedShared& shared, const QueuePairConfig& config);
  ~ExtendedEnd() override;
  ExtendedEnd(const ExtendedEnd&) = delete;
  ExtendedEnd& operator=(const ExtendedEnd&) = delete;

  // --- QueuePairEnd ---
  size_t post(std::span<const WorkRequest> work_requests) override;
  bool has_requests() const override { return requester_.has_requests(); }
  bool has_work() const override { return requester_.has_work(); }
  bool probing() const override { return requester_.probing(); }
  Bytes next_bytes() override { return requester_.next_bytes(); }
  Bytes in_flight() const override { return requester_.in_flight(); }
  Duration silence(Instant now) const override { return requester_.silence(now); }
  void revoke(const GoneMemory& gone) override { requester_.revoke(gone); }
  bool pop_completed(WorkRequest* work_request, CompletionStatus* status) override {
    return requester_.pop_completed(work_request, status);
  }
  void on_timeout(Instant now) override;
  size_t take_turn(Instant now, bool waited, std::span<TxPacket> out) override;
  size_t transmit_control(Instant now, std::span<TxPacket> out) override;
  size_t transmit_answers(Instant now, std::span<TxPacket> out) override;
  const char* fault() const override {
    const bool silent = qp_.broken_by == CompletionStatus::kRetryExceeded;
    return silent && requester_.peer_answers()
               ? "answers, but no data has reached it within the limit (0.6 of PACECAR_TIMEOUT): "
                 "a filter drops it, or this host's kernel refuses it (refused_packets)"
               : nullptr;
  }
  void halt() override { qp_.state = QueuePair::State::kHalted; }

  // --- for ExtendedReceiver, FlowScheduler and NicCore ---
  QueuePair& queue_pair() { return qp_; }
  Requester& requester() { return requester_; }
  Responder& responder() { return responder_; }
  PacketGuard* guard() { return guard_.get(); }
  wire::Coverage coverage() const { return coverage_; }
  // When on_timeout must be called.
  Instant deadline() const { return std::min(requester_.deadline(), requester_.mtu().deadline()); }
  // How the queue pair breaks when the peer is silent.
  CompletionStatus silence_status() const { return CompletionStatus::kRetryExceeded; }
  // Brings the flow up to date after the requester has changed.
  void on_progress(Bytes in_flight_before, SendProgress progress);
  // Whether this new packet must be acknowledged at once, by its request or the policy.
  bool ack_at_once(const wire::DataHeader& header) {
    const AckPolicy& policy = shared_.core.config.ack;
    if (!responder_.in_order()) {
      ack_owed_ |= header.ack_request;
      return header.ack_request || policy.out_of_order_at_once || policy.every_packet;
    }
    if (ack_owed_) {  // all packets that were missing at the time of the request have arrived
      ack_owed_ = false;
      return true;
    }
    return header.ack_request || policy.every_packet;
  }
  // Sends at most `budget` bytes of payload, but at least one packet, on one path.
  [[gnu::flatten]] size_t transmit(Instant now, Bytes budget, std::span<TxPacket> out);
  void on_answer(const wire::Nak& nak, Instant now);  // The peer has received a question.
  TxPacket refusal(const wire::Nak& nak);  // The packet of a refusal, for which the slab has room.

 private:
  ExtendedEnd(ExtendedShared& shared, QueuePair& qp, std::unique_ptr<PacketGuard> guard,
              wire::Coverage coverage);
  // Writes a packet's trailer; returns the payload to send, which is encrypted if required.
  std::span<const uint8_t> seal(std::span<const uint8_t> header, std::span<const uint8_t> payload,
                                std::span<uint8_t> sealed, std::span<uint8_t> trailer) {
    if (guard_ != nullptr) {
      guard_->seal(header, payload, sealed.data(), trailer);
      return guard_->enciphers() ? sealed : payload;
    }
    wire::store_checksum(wire::checksum(header, payload, coverage_),
                         trailer.first<wire::kChecksumBytes>());
    return payload;
  }
  size_t max_ack_bytes() const { return responder_.max_ack_bytes() + shared_.trailer_bytes; }
  TxPacket answer(std::span<const uint8_t> bytes);
  size_t transmit_run(Instant now, Bytes below, uint16_t path, std::span<TxPacket> out);
  [[gnu::noinline]] size_t transmit_pieces(const Requester::Outgoing& packet, uint16_t path,
                                           std::span<TxPacket> out);
  [[gnu::noinline]] size_t transmit_questions(Instant now, std::span<TxPacket> out);
  size_t ask(Bytes size, bool joined, uint16_t path, Instant now, std::span<TxPacket> out);
  void on_asked();
  TxPacket sealed_packet(std::span<uint8_t> piece, size_t header_bytes,
                         std::span<const uint8_t> payload, uint16_t path);
  void on_sent(Instant now, const FlowScheduler::Sent& sent);
  std::span<const uint8_t> write_ack(Instant now);
  size_t gather(Instant now, Bytes room, size_t packets);
  [[gnu::noinline]] size_t write_control(Instant now, Bytes room);
  [[gnu::noinline]] size_t join(Instant now, Bytes room, size_t packets);
  [[gnu::noinline]] size_t follow(Instant now, std::span<const TxPacket> burst,
                                  std::span<TxPacket> out);
  [[gnu::noinline]] void learn_round_trip();

  ExtendedShared& shared_;
  QueuePair& qp_;
  Requester requester_;
  Responder responder_;
  std::unique_ptr<PacketGuard> guard_;
  const wire::Coverage coverage_;     // of checksums
  bool ack_owed_ = false;             // requested while earlier packets were missing
  uint32_t answer_path_ = 0;          // of the next acknowledgement or refusal
  ExtendedEnd* next_sibling_ = this;  // a ring
};

}  // namespace pacecar
