#include "transport/softnic/extended/responder.h"

#include <algorithm>

#include "transport/base/polled_memory.h"
#include "transport/base/seq.h"

namespace pacecar {
namespace {

constexpr Bytes kMaxTelemetryBytes = kMaxTelemetryHops * wire::kTelemetryHopBytes;

}  // namespace

Responder::Responder(uint32_t window_packets, uint32_t writes, uint64_t first_psn, Bytes mtu)
    : window_(window_packets, first_psn),
      writes_(writes),
      bitmap_(std::min<size_t>(window_packets / 64, (mtu - kMaxTelemetryBytes) / 8)) {}

inline void Responder::remember(const Data& data) {
  newest_.arrival = data.arrival;
  newest_.psn = data.header.psn;
  newest_.timestamp = data.header.timestamp;
  newest_.valid = true;
  newest_.marked = data.marked();
  newest_.hops = 0;
  if (!data.packet.telemetry.empty()) remember_telemetry(data.packet.telemetry);
}

inline void Responder::accept(uint64_t psn, const Data& data) {
  window_.mark(psn);
  note_accepted(data);
}

inline void Responder::note_accepted(const Data& data) {
  ++received_;
  marked_ += data.marked() ? 1 : 0;
  remember(data);
  ack_due_ = true;
}

Responder::Outcome Responder::on_data(const Data& data, const MemoryTable& memory) {
  const wire::DataHeader& header = data.header;
  const uint64_t psn = expand_psn(window_.cumulative(), header.psn);
  switch (window_.classify(psn)) {
    case Arrival::kOutOfWindow: return Outcome::kOutOfWindow;
    case Arrival::kDuplicate:
      ack_due_ = true;  // the acknowledgement was probably lost
      remember(data);
      return Outcome::kDuplicate;
    case Arrival::kNew: break;
  }
  const bool tracked = header.opcode == wire::Opcode::kWriteWithImm;
  if (header.taken_back) {
    if (tracked) writes_.cancel(header.msn);
    accept(psn, data);
    return Outcome::kPlaced;
  }
  WriteTracker::Write* write = nullptr;
  if (tracked) {
    write = writes_.find(header.msn, data.bytes(), header.length);
    if (write == nullptr) return Outcome::kRefused;
  }
  if (data.bytes() > 0) {
    uint8_t* place = memory.writable(header.key, header.address, data.bytes());
    if (place == nullptr) return Outcome::kRefused;
    ordered_copy(place, data.payload.data(), data.payload.size());
  }
  Bytes bytes = data.bytes();
  if (header.pieces != 0) [[unlikely]] {
    const auto whole = pieces_.add(psn, header.piece, header.pieces, bytes);
    if (!whole) return Outcome::kPiece;
    bytes = *whole;
    if (tracked && writes_.find(header.msn, bytes, header.length) == nullptr) {
      return Outcome::kRefused;
    }
  }
  accept(psn, data);
  return tracked && writes_.count(*write, bytes, header.length) ? Outcome::kCompleted
                                                                : Outcome::kPlaced;
}

Responder::Target Responder::target_of(const wire::DataHeader& header, const MemoryTable& memory) {
  Target target{.range = memory.writable_range(header.key)};
  if (header.opcode == wire::Opcode::kWriteWithImm) {
    target.write = writes_.find(header.msn, 0, header.length);
  }
  return target;
}

bool Responder::on_same_write(const Data& data, const Target& target) {
  const wire::DataHeader& header = data.header;
  if (!window_.is_next(header.psn)) return false;
  const bool tracked = header.opcode == wire::Opcode::kWriteWithImm;
  const Bytes bytes = data.bytes();
  if (tracked && (target.write == nullptr || !target.write->lacks_more_than(bytes))) return false;
  uint8_t* const place = target.range.writable(header.address, bytes);
  if (place == nullptr || bytes == 0) return false;
  ordered_copy(place, data.payload.data(), data.payload.size());
  window_.take_next();
  note_accepted(data);
  if (tracked) target.write->count(bytes);
  return true;
}

Arrival Responder::on_trimmed(const wire::DataHeader& header) {
  const Arrival arrival = window_.classify(expand_psn(window_.cumulative(), header.psn));
  if (arrival == Arrival::kDuplicate) {
    newest_.valid &= ack_due_;  // the echo is valid only if it has not been sent yet
    ack_due_ = true;
  }
  return arrival;
}

// Telemetry that is echoed is cut off at the first hop that the wire format refuses.
void Responder::remember_telemetry(std::span<const TelemetryHop> telemetry) {
  for (const TelemetryHop& hop : telemetry) {
    if (hop.rate_mbps == 0 || newest_.hops == kMaxTelemetryHops) return;
    newest_.telemetry[newest_.hops++] = hop;
  }
}

size_t Responder::write_ack(uint32_t destination_qp, Instant now, std::span<uint8_t> to) {
  constexpr int64_t kMaxHold = 0xFFFF'FFFF;
  const int64_t hold = std::clamp<int64_t>((now - newest_.arrival).ns(), 0, kMaxHold);
  const wire::AckHeader header{
      .destination_qp = destination_qp,
      .cumulative = static_cast<uint32_t>(window_.cumulative() & kPsnMask),
      .echo_timestamp = newest_.timestamp,
      .hold_ns = static_cast<uint32_t>(hold),
      .received = received_,
      .marked = marked_,
      .echo_psn = newest_.psn,
      .echo_valid = newest_.valid,
      .echo_marked = newest_.marked,
  };
  const uint32_t words = window_.selective_words(bitmap_);
  ack_due_ = false;
  return wire::encode(header, std::span(bitmap_).first(words),
                      std::span(newest_.telemetry).first(newest_.hops), to);
}

}  // namespace pacecar
