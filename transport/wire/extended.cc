#include "transport/wire/extended.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/base/check.h"

namespace pacecar::wire {
namespace {

constexpr uint32_t kLow24 = 0xFFFFFF;
// The BTH's first 8 bytes without opcode and queue pair, the same in every packet: flags, padding,
// version and congestion bits are zero (ECN is in the IP header); the default partition.
constexpr uint64_t kWithoutOpcode = ~(uint64_t{0xFF} << 56);
constexpr uint64_t kBthFixedBits = kBeginning.bits & kWithoutOpcode;
constexpr uint64_t kBthFixedValue = kBeginning.value & kWithoutOpcode;

constexpr uint32_t kBthAckRequest = 0x8000'0000;
constexpr uint32_t kBthReservedBits = 0x7F00'0000;
constexpr uint32_t kDataTakenBack = 0x01;
constexpr uint32_t kDataQuestion = 0x04;
constexpr uint32_t kDataPiece = 0x08;
constexpr uint32_t kDataUnusedBits = 0xF0;
constexpr uint32_t kAckEchoValid = 0x0000'0100;
constexpr uint32_t kAckEchoMarked = 0x0000'0200;
constexpr uint32_t kAckUnusedBits = 0x0000'FCFF;

// Offsets in a data header.
constexpr size_t kPsnAt = 8;
constexpr size_t kAddressAt = 12;
constexpr size_t kKeyAt = 20;
constexpr size_t kTimestampAt = 36;

// Offsets in an acknowledgement, of the numbers of bitmap words and of hops.
constexpr size_t kAckWordsAt = 32;
constexpr size_t kAckHopsAt = 31;

struct Bth {
  Opcode opcode{};
  uint32_t destination_qp = 0;
  uint32_t psn = 0;
  bool ack_request = false;
};

void encode_bth(const Bth& bth, uint8_t* to) {
  store_be64(
      static_cast<uint64_t>(bth.opcode) << 56 | kBthFixedValue | (bth.destination_qp & kLow24), to);
  store_be32((bth.psn & kLow24) | (bth.ack_request ? kBthAckRequest : 0), to + 8);
}

// Reads kBthBytes.
bool decode_bth(const uint8_t* from, Bth& bth) {
  const uint64_t first = load_be64(from);
  const uint32_t last = load_be32(from + 8);
  bth.opcode = static_cast<Opcode>(first >> 56);
  bth.destination_qp = static_cast<uint32_t>(first) & kLow24;
  bth.psn = last & kLow24;
  bth.ack_request = (last & kBthAckRequest) != 0;
  return (first & kBthFixedBits) == kBthFixedValue && (last & kBthReservedBits) == 0;
}

}  // namespace

bool TelemetryView::valid() const {
  for (size_t i = 0; i < hops(); ++i) {
    if ((*this)[i].rate_mbps == 0) return false;
  }
  return true;
}

void store_telemetry(std::span<const TelemetryHop> hops, uint8_t* to) {
  for (const TelemetryHop& hop : hops) {
    store_be32(hop.time_ns, to);
    store_be32(hop.sent_bytes, to + 4);
    store_be32(hop.queue_bytes, to + 8);
    store_be32(hop.rate_mbps, to + 12);
    to += kTelemetryHopBytes;
  }
}

void encode(const DataHeader& header, std::span<uint8_t, kDataHeaderBytes> to) {
  PACECAR_DCHECK(header.opcode == Opcode::kWriteWithImm ||
                 (header.opcode == Opcode::kWrite && header.immediate == 0));
  uint8_t* p = to.data();
  encode_bth({header.opcode, header.destination_qp, header.psn, header.ack_request}, p);
  store_be64(header.address, p + 12);
  store_be32(header.key, p + 20);
  store_be32(header.length, p + 24);
  store_be32(header.immediate, p + 28);
  store_be32(header.msn << 8 | (header.taken_back ? kDataTakenBack : 0) |
                 (header.joined ? kDataJoined : 0) | (header.question ? kDataQuestion : 0) |
                 (header.pieces != 0 ? kDataPiece : 0),
             p + 32);
  store_be32(header.timestamp, p + 36);
}

void encode_piece(const DataHeader& header, std::span<uint8_t, kPieceHeaderBytes> to) {
  encode(header, to.first<kDataHeaderBytes>());
  store_be32(uint32_t{header.piece} << 24 | uint32_t{header.pieces} << 16, &to[kDataHeaderBytes]);
}

void encode_alike(std::span<const uint8_t, kDataHeaderBytes> like, uint32_t psn, uint64_t address,
                  std::span<uint8_t, kDataHeaderBytes> to) {
  const uint32_t flags = load_be32(&like[kPsnAt]) & ~kLow24;
  std::memcpy(to.data(), like.data(), kPsnAt);
  store_be32(flags | (psn & kLow24), &to[kPsnAt]);
  store_be64(address, &to[kAddressAt]);
  std::memcpy(&to[kKeyAt], &like[kKeyAt], kDataHeaderBytes - kKeyAt);
}

namespace {

// The rest of decode() for questions and pieces, which travel alone.
bool decode_rare(uint32_t flags, DataHeader& header, std::span<const uint8_t>& payload) {
  header.question = (flags & kDataQuestion) != 0;
  header.pieces = header.piece = 0;
  if ((flags & kDataUnusedBits) != 0 || header.joined || header.taken_back) return false;
  if (header.question) {
    const DataHeader without_write{.ack_request = header.ack_request,
                                   .question = true,
                                   .destination_qp = header.destination_qp,
                                   .psn = header.psn,
                                   .timestamp = header.timestamp};
    return (flags & kDataPiece) == 0 && header == without_write;
  }
  if (payload.size() < kPieceHeaderBytes - kDataHeaderBytes) return false;
  const uint32_t which = load_be32(payload.data());
  header.piece = static_cast<uint8_t>(which >> 24);
  header.pieces = static_cast<uint8_t>(which >> 16);
  payload = payload.subspan(kPieceHeaderBytes - kDataHeaderBytes);
  const bool opcode_fits = header.opcode == Opcode::kWriteWithImm ||
                           (header.opcode == Opcode::kWrite && header.immediate == 0);
  return opcode_fits && (which & 0xFFFF) == 0 && header.piece < header.pieces && !payload.empty() &&
         payload.size() <= header.length;
}

}  // namespace

bool decode(std::span<const uint8_t> packet, DataHeader& header,
            std::span<const uint8_t>& payload) {
  if (packet.size() < kDataHeaderBytes || packet.size() > kMaxDatagramBytes) return false;
  const uint8_t* p = packet.data();
  Bth bth;
  if (!decode_bth(p, bth)) return false;
  const uint32_t msn_and_flags = load_be32(p + 32);
  // Assigned by field: a DataHeader{...} would be built elsewhere and copied, for each packet.
  header.opcode = bth.opcode;
  header.ack_request = bth.ack_request;
  header.taken_back = (msn_and_flags & kDataTakenBack) != 0;
  header.joined = (msn_and_flags & kDataJoined) != 0;
  header.destination_qp = bth.destination_qp;
  header.psn = bth.psn;
  header.address = load_be64(p + 12);
  header.key = load_be32(p + 20);
  header.length = load_be32(p + 24);
  header.immediate = load_be32(p + 28);
  header.msn = msn_and_flags >> 8;
  header.timestamp = load_be32(p + 36);
  payload = packet.subspan(kDataHeaderBytes);
  if ((msn_and_flags & (kDataQuestion | kDataPiece)) != 0) [[unlikely]] {
    return decode_rare(msn_and_flags, header, payload);
  }
  header.question = false;
  header.pieces = 0;
  const bool opcode_fits = bth.opcode == Opcode::kWriteWithImm ||
                           (bth.opcode == Opcode::kWrite && header.immediate == 0);
  const size_t most = header.taken_back ? 0 : header.length;
  return opcode_fits && (msn_and_flags & kDataUnusedBits) == 0 && payload.size() <= most;
}

bool decode_alike(std::span<const uint8_t> packet, std::span<const uint8_t, kDataHeaderBytes> like,
                  DataHeader& header, std::span<const uint8_t>& payload) {
  if (!same_write(packet, like) || packet.size() > kMaxDatagramBytes) return false;
  const uint8_t* p = packet.data();
  const uint32_t psn = load_be32(p + kPsnAt);
  if ((psn & kBthReservedBits) != 0) return false;
  const size_t most = header.taken_back ? 0 : header.length;
  if (packet.size() - kDataHeaderBytes > most) return false;
  header.ack_request = (psn & kBthAckRequest) != 0;
  header.psn = psn & kLow24;
  header.address = load_be64(p + kAddressAt);
  header.timestamp = load_be32(p + kTimestampAt);
  payload = packet.subspan(kDataHeaderBytes);
  return true;
}

std::span<const uint8_t> take_first(std::span<const uint8_t>& datagram, PacketKind kind,
                                    size_t trailer_bytes) {
  const size_t least_joined = kDataHeaderBytes + trailer_bytes + kJoinedBytes;
  const size_t size = datagram.size();
  size_t first = size;
  size_t others = 0;
  const bool may_join = kind == PacketKind::kData && size >= least_joined;
  if (may_join && !stands_alone(datagram)) {
    const size_t joined = load_be16(&datagram[size - kJoinedBytes]);
    if (joined > size - least_joined) return std::exchange(datagram, {});
    first = size - kJoinedBytes - joined;
    others = joined;
  } else if (kind == PacketKind::kAck && size >= kAckHeaderBytes) {
    const size_t words = load_be16(&datagram[kAckWordsAt]);
    first = std::min(size, ack_bytes(words, datagram[kAckHopsAt]) + trailer_bytes);
    others = size - first;
  }
  const auto packet = datagram.first(first);
  datagram = datagram.subspan(first, others);
  return packet;
}

bool decode_trimmed(std::span<const uint8_t> datagram, DataHeader& header) {
  std::span<const uint8_t> payload;
  return datagram.size() == kDataHeaderBytes && decode(datagram, header, payload);
}

size_t encode(const AckHeader& header, std::span<const uint64_t> bitmap,
              std::span<const TelemetryHop> telemetry, std::span<uint8_t> to) {
  const size_t size = ack_bytes(bitmap.size(), telemetry.size());
  PACECAR_CHECK(bitmap.size() <= kMaxBitmapWords && telemetry.size() <= kMaxTelemetryHops &&
                to.size() >= size);
  uint8_t* p = to.data();
  encode_bth({Opcode::kAck, header.destination_qp, header.cumulative}, p);
  store_be32(header.echo_timestamp, p + 12);
  store_be32(header.hold_ns, p + 16);
  store_be32(header.received, p + 20);
  store_be32(header.marked, p + 24);
  store_be32(header.echo_psn << 8 | static_cast<uint32_t>(telemetry.size()), p + 28);
  store_be32(static_cast<uint32_t>(bitmap.size()) << 16 | (header.echo_valid ? kAckEchoValid : 0) |
                 (header.echo_marked ? kAckEchoMarked : 0),
             p + 32);
  p += kAckHeaderBytes;
  for (const uint64_t word : bitmap) {
    store_be64(word, p);
    p += sizeof word;
  }
  store_telemetry(telemetry, p);
  PACECAR_DCHECK(TelemetryView({p, kTelemetryHopBytes * telemetry.size()}).valid());
  return size;
}

bool decode(std::span<const uint8_t> packet, AckHeader& header, Bitmap& bitmap,
            TelemetryView& telemetry) {
  if (packet.size() < ack_bytes(0)) return false;
  const uint8_t* p = packet.data();
  Bth bth;
  if (!decode_bth(p, bth) || bth.opcode != Opcode::kAck || bth.ack_request) return false;
  const uint32_t psn_and_hops = load_be32(p + 28);
  const uint32_t words_and_flags = load_be32(p + 32);
  const size_t words = words_and_flags >> 16;
  const size_t hops = psn_and_hops & 0xFF;
  if ((words_and_flags & kAckUnusedBits) != 0 || words > kMaxBitmapWords ||
      hops > kMaxTelemetryHops || packet.size() != ack_bytes(words, hops)) {
    return false;
  }
  header = {.destination_qp = bth.destination_qp,
            .cumulative = bth.psn,
            .echo_timestamp = load_be32(p + 12),
            .hold_ns = load_be32(p + 16),
            .received = load_be32(p + 20),
            .marked = load_be32(p + 24),
            .echo_psn = psn_and_hops >> 8,
            .echo_valid = (words_and_flags & kAckEchoValid) != 0,
            .echo_marked = (words_and_flags & kAckEchoMarked) != 0};
  bitmap = Bitmap(packet.subspan(kAckHeaderBytes, 8 * words));
  telemetry = TelemetryView(packet.subspan(kAckHeaderBytes + 8 * words, kTelemetryHopBytes * hops));
  return telemetry.valid();
}

void encode(const Nak& nak, std::span<uint8_t, kNakBytes> to) {
  encode_bth({Opcode::kNak, nak.destination_qp, nak.psn}, to.data());
  store_be32(nak.echo_timestamp, to.data() + 12);
  store_be32(static_cast<uint32_t>(nak.syndrome) << 24, to.data() + 16);
}

bool decode(std::span<const uint8_t> packet, Nak& nak) {
  if (packet.size() != kNakBytes) return false;
  const uint8_t* p = packet.data();
  Bth bth;
  if (!decode_bth(p, bth) || bth.opcode != Opcode::kNak || bth.ack_request) return false;
  const uint32_t syndrome = load_be32(p + 16);
  nak = {.destination_qp = bth.destination_qp,
         .psn = bth.psn,
         .echo_timestamp = load_be32(p + 12),
         .syndrome = static_cast<Syndrome>(syndrome >> 24)};
  const bool known =
      nak.syndrome >= Syndrome::kRemoteAccessError && nak.syndrome <= Syndrome::kQuestion;
  return known && (syndrome & kLow24) == 0;
}

}  // namespace pacecar::wire
