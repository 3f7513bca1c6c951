#include "transport/wire/roce.h"

#include <type_traits>

#include "transport/base/check.h"
#include "transport/base/seq.h"
#include "transport/wire/big_endian.h"

namespace pacecar::roce {
namespace {

using wire::load_be32;
using wire::load_be64;
using wire::store_be32;
using wire::store_be64;

// The second byte of the BTH: solicited event, migration state, padding, version.
constexpr uint8_t kSolicited = 0x80;
constexpr uint8_t kMigrated = 0x40;  // as hardware without alternate paths sends it
constexpr unsigned kPadShift = 4;
constexpr uint8_t kVersionMask = 0x0F;
constexpr uint8_t kPadMask = 0x03;
// An opcode of UC is that of RC with another service number in the upper three bits (table 38).
constexpr uint8_t kServiceMask = 0xE0;
constexpr uint8_t kUnreliable = 0x20;
// The default partition; its members are full or limited (10.9.1).
constexpr uint32_t kDefaultPartition = 0xFFFF;
constexpr uint32_t kPartitionMask = 0x7FFF;
constexpr uint32_t kBackwardCongestion = 1U << 30;  // of the word with the queue pair number
constexpr uint32_t kAckRequest = 1U << 31;          // of the word with the PSN

constexpr bool has_reth(Shape shape) {
  return shape.kind == Kind::kReadRequest || (shape.kind == Kind::kWrite && shape.first);
}

constexpr bool has_aeth(Shape shape) {
  return shape.kind == Kind::kAck || shape.kind == Kind::kAtomicAck ||
         (shape.kind == Kind::kReadResponse && (shape.first || shape.last));
}

constexpr bool has_payload(Shape shape) {
  return shape.kind == Kind::kSend || shape.kind == Kind::kWrite ||
         shape.kind == Kind::kReadResponse || shape.kind == Kind::kDatagram;
}

// Calls visit(field) for each field behind the BTH, in the order of the wire.
template <typename P, typename Visit>
void visit_headers(Shape shape, P& packet, Visit visit) {
  // A word of two fields: 8 and 24 bits.
  const auto visit_word = [&](auto& high, auto& low24) {
    uint32_t word = uint32_t{high} << 24 | (low24 & kPsnMask);
    visit(word);
    if constexpr (!std::is_const_v<P>) {
      high = static_cast<uint8_t>(word >> 24);
      low24 = word & kPsnMask;
    }
  };
  const bool atomic = shape.kind == Kind::kAtomic;
  if (has_reth(shape) || atomic) {
    visit(packet.address);
    visit(packet.key);
  }
  if (has_reth(shape)) visit(packet.length);
  if (atomic) {
    visit(packet.operand);
    visit(packet.compare);
  }
  if (shape.kind == Kind::kDatagram) {
    uint8_t reserved = 0;
    visit(packet.queue_key);
    visit_word(reserved, packet.source_qp);
  }
  if (has_aeth(shape)) visit_word(packet.syndrome, packet.msn);
  if (shape.kind == Kind::kAtomicAck) visit(packet.original);
  if (shape.immediate) visit(packet.immediate);
  if (shape.invalidate) visit(packet.invalidated_key);
  if (shape.kind == Kind::kCnp) {
    std::array<uint64_t, kCnpReservedBytes / sizeof(uint64_t)> reserved{};
    for (uint64_t& word : reserved) visit(word);
  }
}

size_t header_bytes_of(Shape shape) {
  static constexpr Packet kAny;
  size_t bytes = kBthBytes;
  visit_headers(shape, kAny, [&](const auto& field) { bytes += sizeof field; });
  return bytes;
}

constexpr bool may_be_unreliable(Shape shape) {
  return (shape.kind == Kind::kSend && !shape.invalidate) || shape.kind == Kind::kWrite;
}

// Whether a packet of this shape may carry such a payload; only its connection knows more.
constexpr bool right_payload(Shape shape, size_t payload) {
  if (!has_payload(shape)) return payload == 0;
  const bool only = shape.first && shape.last;
  return only || payload > 0;
}

}  // namespace

Opcode opcode_of(Shape shape) {
  if (shape.invalidate) {
    return shape.first ? Opcode::kSendOnlyInvalidate : Opcode::kSendLastInvalidate;
  }
  // First, middle, last and only have adjacent opcodes, with an immediate after those without.
  const int with_imm = shape.immediate ? 1 : 0;
  switch (shape.kind) {
    case Kind::kSend:
    case Kind::kWrite: {
      const int base = shape.kind == Kind::kSend ? 0x00 : 0x06;
      const int place = shape.first ? (shape.last ? 4 : 0) : (shape.last ? 2 : 1);
      return static_cast<Opcode>(base + place + with_imm);
    }
    case Kind::kReadResponse:
      return static_cast<Opcode>(0x0D +
                                 (shape.first ? (shape.last ? 3 : 0) : (shape.last ? 2 : 1)));
    default: break;
  }
  PACECAR_CHECK(!"a message of this kind has one packet");
}

Duration rnr_delay(uint8_t syndrome) {
  // In units of 10 us.
  static constexpr std::array<uint16_t, 32> kDelays = {
      65535, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
      48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
      2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return Duration::from_us(10) * int64_t{kDelays[syndrome & 0x1F]};
}

size_t header_bytes(Opcode opcode) { return header_bytes_of(shape_of(opcode)); }

void encode(const Packet& packet, std::span<uint8_t> to) {
  const Shape shape = shape_of(packet.opcode);
  PACECAR_DCHECK(to.size() >= header_bytes_of(shape));
  uint8_t* at = to.data();
  at[0] = static_cast<uint8_t>(packet.opcode) | (packet.unreliable ? kUnreliable : uint8_t{0});
  at[1] = static_cast<uint8_t>((packet.solicited ? kSolicited : 0) | kMigrated |
                               pad_bytes(packet.payload.size()) << kPadShift);
  at[2] = at[3] = 0xFF;
  const uint32_t congestion = shape.kind == Kind::kCnp ? kBackwardCongestion : 0;
  store_be32(congestion | (packet.destination_qp & kPsnMask), at + 4);
  store_be32((packet.ack_request ? kAckRequest : 0) | (packet.psn & kPsnMask), at + 8);
  at += kBthBytes;
  visit_headers(shape, packet, [&](const auto& field) {
    if constexpr (sizeof field == sizeof(uint64_t)) {
      store_be64(field, at);
    } else {
      store_be32(field, at);
    }
    at += sizeof field;
  });
}

Decoded decode(std::span<const uint8_t> datagram, Packet& packet) {
  if (datagram.size() < kBthBytes + kIcrcBytes) return Decoded::kLength;
  const bool unreliable = (datagram[0] & kServiceMask) == kUnreliable;
  const auto opcode = static_cast<Opcode>(datagram[0] & (unreliable ? ~kServiceMask : 0xFF));
  packet = Packet{.opcode = opcode, .unreliable = unreliable};
  const Shape shape = shape_of(opcode);
  if (shape.kind == Kind::kUnknown || (unreliable && !may_be_unreliable(shape))) {
    return Decoded::kOpcode;
  }
  const size_t header = header_bytes_of(shape);
  if (datagram.size() < header + kIcrcBytes || datagram.size() % 4 != 0) return Decoded::kLength;
  const uint8_t* at = datagram.data();
  if ((at[1] & kVersionMask) != 0) return Decoded::kVersion;
  const uint32_t partition = load_be32(at) & kPartitionMask;
  if (partition != (kDefaultPartition & kPartitionMask)) return Decoded::kPartition;
  const size_t room = datagram.size() - header - kIcrcBytes;
  const size_t pad = at[1] >> kPadShift & kPadMask;
  if (pad > room) return Decoded::kPadding;
  packet.payload = datagram.subspan(header, room - pad);
  if (!right_payload(shape, packet.payload.size())) return Decoded::kPayload;
  packet.destination_qp = load_be32(at + 4) & kPsnMask;
  const uint32_t psn = load_be32(at + 8);
  packet.psn = psn & kPsnMask;
  packet.ack_request = (psn & kAckRequest) != 0;
  packet.solicited = (at[1] & kSolicited) != 0;
  at += kBthBytes;
  visit_headers(shape, packet, [&](auto& field) {
    if constexpr (sizeof field == sizeof(uint64_t)) {
      field = load_be64(at);
    } else {
      field = load_be32(at);
    }
    at += sizeof field;
  });
  const bool reserved = has_aeth(shape) && classify(packet.syndrome) == Syndrome::kReserved;
  return reserved ? Decoded::kSyndrome : Decoded::kOk;
}

}  // namespace pacecar::roce
