// The packets of standard RoCE v2: reliable and unreliable connections (RC, UC) and unreliable
// datagrams (UD) of the InfiniBand Architecture Specification vol. 1 (chapter 9; headers: 9.2 to
// 9.6), and the congestion notification of its annex A17. README.md has the layout. The ICRC that
// ends them is in icrc.h.
//
// Decoders accept any bytes and report what is wrong with them. Queue pair numbers, PSNs and MSNs
// have 24 bits; encoders send the low 24 bits.
//
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/base/units.h"

namespace pacecar::roce {

inline constexpr uint16_t kUdpPort = 4791;
// The first UDP source port of RoCE v2 (annex A17, 17.3.1).
inline constexpr uint16_t kFirstSourcePort = 0xC000;

enum class Opcode : uint8_t {
  kSendFirst = 0x00,
  kSendMiddle = 0x01,
  kSendLast = 0x02,
  kSendLastImm = 0x03,
  kSendOnly = 0x04,
  kSendOnlyImm = 0x05,
  kWriteFirst = 0x06,
  kWriteMiddle = 0x07,
  kWriteLast = 0x08,
  kWriteLastImm = 0x09,
  kWriteOnly = 0x0A,
  kWriteOnlyImm = 0x0B,
  kReadRequest = 0x0C,
  kReadFirst = 0x0D,  // responses to a read request
  kReadMiddle = 0x0E,
  kReadLast = 0x0F,
  kReadOnly = 0x10,
  kAck = 0x11,
  kAtomicAck = 0x12,
  kCompareSwap = 0x13,
  kFetchAdd = 0x14,
  kSendLastInvalidate = 0x16,
  kSendOnlyInvalidate = 0x17,
  kUdSendOnly = 0x64,
  kUdSendOnlyImm = 0x65,
  kCnp = 0x81,  // congestion notification packet: annex A17, 17.9.3
};

enum class Kind : uint8_t {
  kUnknown,
  kSend,
  kWrite,
  kReadRequest,
  kReadResponse,
  kAck,
  kAtomic,
  kAtomicAck,
  kDatagram,
  kCnp
};

// The properties of an opcode's packets.
struct Shape {
  Kind kind = Kind::kUnknown;
  bool first = false;  // of its message
  bool last = false;
  bool immediate = false;
  bool invalidate = false;  // carries an IETH: a key to invalidate
};

constexpr Shape shape_of(Opcode opcode) {
  switch (opcode) {
    case Opcode::kSendFirst:
      return {Kind::kSend, true, false, false};
    case Opcode::kSendMiddle:
      return {Kind::kSend, false, false, false};
    case Opcode::kSendLast:
      return {Kind::kSend, false, true, false};
    case Opcode::kSendLastImm:
      return {Kind::kSend, false, true, true};
    case Opcode::kSendOnly:
      return {Kind::kSend, true, true, false};
    case Opcode::kSendOnlyImm:
      return {Kind::kSend, true, true, true};
    case Opcode::kSendLastInvalidate:
      return {.kind = Kind::kSend, .last = true, .invalidate = true};
    case Opcode::kSendOnlyInvalidate:
      return {.kind = Kind::kSend, .first = true, .last = true, .invalidate = true};
    case Opcode::kWriteFirst:
      return {Kind::kWrite, true, false, false};
    case Opcode::kWriteMiddle:
      return {Kind::kWrite, false, false, false};
    case Opcode::kWriteLast:
      return {Kind::kWrite, false, true, false};
    case Opcode::kWriteLastImm:
      return {Kind::kWrite, false, true, true};
    case Opcode::kWriteOnly:
      return {Kind::kWrite, true, true, false};
    case Opcode::kWriteOnlyImm:
      return {Kind::kWrite, true, true, true};
    case Opcode::kReadRequest:
      return {Kind::kReadRequest, true, true, false};
    case Opcode::kReadFirst:
      return {Kind::kReadResponse, true, false, false};
    case Opcode::kReadMiddle:
      return {Kind::kReadResponse, false, false, false};
    case Opcode::kReadLast:
      return {Kind::kReadResponse, false, true, false};
    case Opcode::kReadOnly:
      return {Kind::kReadResponse, true, true, false};
    case Opcode::kAck:
      return {Kind::kAck, true, true, false};
    case Opcode::kAtomicAck:
      return {Kind::kAtomicAck, true, true, false};
    case Opcode::kCompareSwap:
    case Opcode::kFetchAdd:
      return {Kind::kAtomic, true, true, false};
    case Opcode::kUdSendOnly:
      return {Kind::kDatagram, true, true, false};
    case Opcode::kUdSendOnlyImm:
      return {Kind::kDatagram, true, true, true};
    case Opcode::kCnp:
      return {Kind::kCnp, true, true, false};
  }
  return {};
}

// The opcode of a packet of a send, write or read response.
Opcode opcode_of(Shape shape);

// AETH syndromes (9.7.5.1.1 and table 44).
inline constexpr uint8_t kAckUnlimited = 0x1F;  // an acknowledgement without a count of credits
inline constexpr uint8_t kNakSequence = 0x60;
inline constexpr uint8_t kNakInvalidRequest = 0x61;
inline constexpr uint8_t kNakRemoteAccess = 0x62;
inline constexpr uint8_t kNakRemoteOperation = 0x63;

enum class Syndrome : uint8_t { kAck, kReceiverNotReady, kNak, kReserved };

constexpr Syndrome classify(uint8_t syndrome) {
  if (syndrome <= 0x1F) return Syndrome::kAck;
  if (syndrome <= 0x3F) return Syndrome::kReceiverNotReady;
  return syndrome >= kNakSequence && syndrome <= kNakRemoteOperation ? Syndrome::kNak
                                                                     : Syndrome::kReserved;
}

// How long to wait after a "receiver not ready" (table 45), by the low five bits of the syndrome.
Duration rnr_delay(uint8_t syndrome);
// The syndrome of an RNR NAK with the code of this delay.
constexpr uint8_t receiver_not_ready(uint8_t delay) {
  return static_cast<uint8_t>(0x20 | (delay & 0x1F));
}
inline constexpr uint8_t kUsualRnrDelay = 10;  // 0.32 ms

inline constexpr size_t kBthBytes = 12;
inline constexpr size_t kRethBytes = 16;
inline constexpr size_t kAethBytes = 4;
inline constexpr size_t kImmediateBytes = 4;
inline constexpr size_t kInvalidateBytes = 4;
inline constexpr size_t kAtomicEthBytes = 28;
inline constexpr size_t kAtomicAckBytes = 8;
inline constexpr size_t kDethBytes = 8;
inline constexpr size_t kGrhBytes = 40;  // before a datagram's payload, in memory only
inline constexpr size_t kIcrcBytes = 4;
inline constexpr size_t kCnpReservedBytes = 16;
inline constexpr size_t kMaxHeaderBytes = kBthBytes + kAtomicEthBytes;
inline constexpr size_t kMaxTrailerBytes = 3 + kIcrcBytes;
inline constexpr Bytes kMaxMessageBytes = Bytes{1} << 31;  // 9.4.1

// One packet. Fields that its opcode does not have are 0.
struct Packet {
  Opcode opcode = Opcode::kAck;
  bool unreliable = false;  // of UC: a send or a write
  bool ack_request = false;
  bool solicited = false;  // the receiver's program should be notified at once
  uint8_t syndrome = 0;
  uint32_t destination_qp = 0;
  uint32_t psn = 0;
  uint32_t msn = 0;
  uint64_t address = 0;  // of the whole write, of what is to be read, or of an atomic's word
  uint32_t key = 0;
  uint32_t length = 0;
  uint32_t immediate = 0;
  uint32_t invalidated_key = 0;  // of a send that invalidates one
  uint64_t operand = 0;    // of an atomic: what is swapped in or added
  uint64_t compare = 0;    // of a compare-and-swap
  uint64_t original = 0;   // of its acknowledgement: the value before the operation
  uint32_t queue_key = 0;  // of a datagram
  uint32_t source_qp = 0;  // likewise
  std::span<const uint8_t> payload;  // without padding
};

// Several processes may share one address. Each takes a slot, from which its UDP port is computed.
// The upper 6 bits of its queue pair numbers are the slot, so a peer computes the port from a queue
// pair number. A NIC that has its address alone has slot 0, which is the standard port.
inline constexpr unsigned kSlotShift = 18;
inline constexpr uint32_t kSlots = 1U << (24 - kSlotShift);
inline constexpr uint16_t kFirstSlotPort = 14791;  // of slot 1

constexpr uint16_t port_of_slot(uint32_t slot) {
  return slot == 0 ? kUdpPort : static_cast<uint16_t>(kFirstSlotPort + slot - 1);
}
// The number of queue pair 1, which takes management datagrams (13.5.1), of a slot's NIC.
constexpr uint32_t general_services_of(uint32_t slot) { return slot << kSlotShift | 1; }
constexpr uint16_t port_of(uint32_t queue_pair) {
  return port_of_slot((queue_pair & 0xFF'FFFF) >> kSlotShift);
}

size_t header_bytes(Opcode opcode);
// Zero bytes that pad a payload to a multiple of four bytes.
constexpr size_t pad_bytes(size_t payload) { return (4 - payload % 4) % 4; }
constexpr size_t trailer_bytes(size_t payload) { return pad_bytes(payload) + kIcrcBytes; }

// Writes the header, header_bytes(packet.opcode); payload, padding and ICRC follow it.
void encode(const Packet& packet, std::span<uint8_t> to);

enum class Decoded : uint8_t {
  kOk,
  kLength,     // too short for its opcode, or not a multiple of four bytes
  kOpcode,     // not supported
  kVersion,    // of the transport header
  kPartition,  // not the default one
  kPadding,    // longer than the payload, or of a packet without payload
  kPayload,    // present where it must not be, or missing
  kSyndrome,   // a reserved one
};

// `packet.payload` points into `datagram`. Does not look at the ICRC. Unless kOk, the packet is
// unspecified.
Decoded decode(std::span<const uint8_t> datagram, Packet& packet);

}  // namespace pacecar::roce
