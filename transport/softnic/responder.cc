#include "transport/softnic/responder.h"

#include <algorithm>

#include "transport/base/seq.h"
#include "transport/softnic/ordered_copy.h"

namespace pacecar {

Responder::Responder(uint32_t window_packets, uint32_t writes, uint64_t first_psn, Bytes mtu)
    : window_(window_packets, first_psn),
      writes_(writes),
      bitmap_(std::min<size_t>(window_packets / 64, mtu / 8)) {}

Responder::Outcome Responder::on_data(const wire::DataHeader& header,
                                      std::span<const uint8_t> payload, bool marked,
                                      Instant arrival, const MemoryTable& memory) {
  const uint64_t psn = expand_psn(window_.cumulative(), header.psn);
  switch (window_.classify(psn)) {
    case Arrival::kOutOfWindow:
      return Outcome::kOutOfWindow;
    case Arrival::kDuplicate:
      ack_due_ = true;  // the acknowledgement was probably lost
      newest_timestamp_ = header.timestamp;
      newest_arrival_ = arrival;
      return Outcome::kDuplicate;
    case Arrival::kNew:
      break;
  }
  const bool tracked = header.opcode == wire::Opcode::kWriteWithImm;
  if (header.taken_back) {
    if (tracked) writes_.cancel(header.msn);
    accept(psn, header, marked, arrival);
    return Outcome::kPlaced;
  }
  if (tracked && !writes_.acceptable(header.msn, payload.size(), header.length)) {
    return Outcome::kRefused;
  }
  if (!payload.empty()) {
    uint8_t* place = memory.writable(header.key, header.address, payload.size());
    if (place == nullptr) return Outcome::kRefused;
    ordered_copy(place, payload.data(), payload.size());
  }
  accept(psn, header, marked, arrival);
  if (!tracked) return Outcome::kPlaced;
  return writes_.add(header.msn, payload.size(), header.length) == WriteTracker::Verdict::kComplete
             ? Outcome::kCompleted
             : Outcome::kPlaced;
}

void Responder::accept(uint64_t psn, const wire::DataHeader& header, bool marked, Instant arrival) {
  window_.mark(psn);
  ++received_;
  marked_ += marked ? 1 : 0;
  newest_timestamp_ = header.timestamp;
  newest_arrival_ = arrival;
  ack_due_ = true;
}

size_t Responder::write_ack(uint32_t destination_qp, Instant now, std::span<uint8_t> to) {
  constexpr int64_t kMaxHold = 0xFFFF'FFFF;
  const int64_t hold = std::clamp<int64_t>((now - newest_arrival_).ns(), 0, kMaxHold);
  const wire::AckHeader header{
      .destination_qp = destination_qp,
      .cumulative = static_cast<uint32_t>(window_.cumulative() & kPsnMask),
      .echo_timestamp = newest_timestamp_,
      .hold_ns = static_cast<uint32_t>(hold),
      .received = received_,
      .marked = marked_,
      .echo_valid = true,
  };
  const uint32_t words = window_.selective_words(bitmap_);
  ack_due_ = false;
  return wire::encode(header, std::span(bitmap_).first(words), to);
}

}  // namespace pacecar
