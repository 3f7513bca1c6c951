#include "transport/wire/roce.h"

#include <algorithm>

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
// The opcodes of UC are those of RC with another number of the service in the upper three bits
// (table 38).
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

constexpr size_t header_bytes_of(Shape shape) {
  if (shape.kind == Kind::kCnp) return kBthBytes + kCnpReservedBytes;
  if (shape.kind == Kind::kAtomic) return kBthBytes + kAtomicEthBytes;
  if (shape.kind == Kind::kAtomicAck) return kBthBytes + kAethBytes + kAtomicAckBytes;
  if (shape.kind == Kind::kDatagram) {
    return kBthBytes + kDethBytes + (shape.immediate ? kImmediateBytes : 0);
  }
  return kBthBytes + (has_reth(shape) ? kRethBytes : 0) + (has_aeth(shape) ? kAethBytes : 0) +
         (shape.immediate ? kImmediateBytes : 0) + (shape.invalidate ? kInvalidateBytes : 0);
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

// What follows the BTH.
Decoded decode_headers(Shape shape, const uint8_t* at, Packet& packet) {
  if (has_reth(shape)) {
    packet.address = load_be64(at);
    packet.key = load_be32(at + 8);
    packet.length = load_be32(at + 12);
    at += kRethBytes;
  }
  if (shape.kind == Kind::kAtomic) {
    packet.address = load_be64(at);
    packet.key = load_be32(at + 8);
    packet.operand = load_be64(at + 12);
    packet.compare = load_be64(at + 20);
  }
  if (shape.kind == Kind::kDatagram) {
    packet.queue_key = load_be32(at);
    packet.source_qp = load_be32(at + 4) & kPsnMask;
    at += kDethBytes;
  }
  if (has_aeth(shape)) {
    const uint32_t aeth = load_be32(at);
    packet.syndrome = static_cast<uint8_t>(aeth >> 24);
    packet.msn = aeth & kPsnMask;
    at += kAethBytes;
    if (classify(packet.syndrome) == Syndrome::kReserved) return Decoded::kSyndrome;
  }
  if (shape.kind == Kind::kAtomicAck) packet.original = load_be64(at);
  if (shape.immediate) packet.immediate = load_be32(at);
  if (shape.invalidate) packet.invalidated_key = load_be32(at);
  return Decoded::kOk;
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
    default:
      break;
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
  if (has_reth(shape)) {
    store_be64(packet.address, at);
    store_be32(packet.key, at + 8);
    store_be32(packet.length, at + 12);
    at += kRethBytes;
  }
  if (shape.kind == Kind::kAtomic) {
    store_be64(packet.address, at);
    store_be32(packet.key, at + 8);
    store_be64(packet.operand, at + 12);
    store_be64(packet.compare, at + 20);
  }
  if (shape.kind == Kind::kDatagram) {
    store_be32(packet.queue_key, at);
    store_be32(packet.source_qp & kPsnMask, at + 4);
    at += kDethBytes;
  }
  if (has_aeth(shape)) {
    store_be32(uint32_t{packet.syndrome} << 24 | (packet.msn & kPsnMask), at);
    at += kAethBytes;
  }
  if (shape.kind == Kind::kAtomicAck) store_be64(packet.original, at);
  if (shape.immediate) store_be32(packet.immediate, at);
  if (shape.invalidate) store_be32(packet.invalidated_key, at);
  if (shape.kind == Kind::kCnp) std::fill_n(at, kCnpReservedBytes, uint8_t{0});
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
  if (pad > room || (room == 0 && pad > 0)) return Decoded::kPadding;
  packet.payload = datagram.subspan(header, room - pad);
  if (!right_payload(shape, packet.payload.size())) return Decoded::kPayload;
  packet.destination_qp = load_be32(at + 4) & kPsnMask;
  const uint32_t psn = load_be32(at + 8);
  packet.psn = psn & kPsnMask;
  packet.ack_request = (psn & kAckRequest) != 0;
  packet.solicited = (at[1] & kSolicited) != 0;
  return decode_headers(shape, at + kBthBytes, packet);
}

}  // namespace pacecar::roce
