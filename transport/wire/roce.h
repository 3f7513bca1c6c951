// The packets of standard RoCE v2: reliable and unreliable connections (RC, UC) and unreliable
// datagrams (UD) of the InfiniBand Architecture Specification vol. 1 (chapter 9; headers: 9.2 to
// 9.6), and the congestion notification of its annex A17. README.md has the layout. The ICRC that
// ends them is in icrc.h. Decoders accept any bytes and report errors in them. Queue pair numbers,
// PSNs and MSNs have 24 bits; encoders write the low 24 bits. Pure functions; any thread.
#pragma once

#include <array>
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

// By opcode, for the opcodes of RC.
inline constexpr std::array<Shape, 0x18> kRcShapes = {{
    {Kind::kSend, true, false},
    {Kind::kSend, false, false},
    {Kind::kSend, false, true},
    {Kind::kSend, false, true, true},
    {Kind::kSend, true, true},
    {Kind::kSend, true, true, true},
    {Kind::kWrite, true, false},
    {Kind::kWrite, false, false},
    {Kind::kWrite, false, true},
    {Kind::kWrite, false, true, true},
    {Kind::kWrite, true, true},
    {Kind::kWrite, true, true, true},
    {Kind::kReadRequest, true, true},
    {Kind::kReadResponse, true, false},
    {Kind::kReadResponse, false, false},
    {Kind::kReadResponse, false, true},
    {Kind::kReadResponse, true, true},
    {Kind::kAck, true, true},
    {Kind::kAtomicAck, true, true},
    {Kind::kAtomic, true, true},
    {Kind::kAtomic, true, true},
    {},  // reserved
    {Kind::kSend, false, true, false, true},
    {Kind::kSend, true, true, false, true},
}};

constexpr Shape shape_of(Opcode opcode) {
  if (const auto index = static_cast<size_t>(opcode); index < kRcShapes.size()) {
    return kRcShapes[index];
  }
  if (opcode == Opcode::kUdSendOnly) return {Kind::kDatagram, true, true};
  if (opcode == Opcode::kUdSendOnlyImm) return {Kind::kDatagram, true, true, true};
  if (opcode == Opcode::kCnp) return {Kind::kCnp, true, true};
  return {};
}

Opcode opcode_of(Shape shape);  // The opcode of a packet of a send, write or read response.

// AETH syndromes (9.7.5.1.1 and table 44).
inline constexpr uint8_t kAckUnlimited = 0x1F;  // an acknowledgement without a credit count
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
// The syndrome of an RNR NAK; `delay`: RNR timer code (table 45).
constexpr uint8_t receiver_not_ready(uint8_t delay) {
  return static_cast<uint8_t>(0x20 | (delay & 0x1F));
}
inline constexpr uint8_t kUsualRnrDelay = 10;  // 0.32 ms

inline constexpr size_t kBthBytes = 12;
inline constexpr size_t kRethBytes = 16;
inline constexpr size_t kAtomicEthBytes = 28;
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
  uint64_t address = 0;  // remote address: of the whole write, of a read, or of an atomic's word
  uint32_t key = 0;
  uint32_t length = 0;
  uint32_t immediate = 0;
  uint32_t invalidated_key = 0;  // of a send that invalidates a memory window
  uint64_t operand = 0;          // of an atomic: the value that is swapped in or added
  uint64_t compare = 0;          // of a compare-and-swap
  uint64_t original = 0;         // of an atomic's acknowledgement: the value before the operation
  uint32_t queue_key = 0;        // of a datagram
  uint32_t source_qp = 0;        // of a datagram
  std::span<const uint8_t> payload;  // without padding
};

// Several processes may share one address. Each process takes a slot: the upper 6 bits of its queue
// pair numbers. The slot determines the UDP port, so a peer computes the port from a queue pair
// number. A NIC that shares its address with no other has slot 0, which has the standard port.
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
  kPadding,    // longer than the payload, or in a packet without payload
  kPayload,    // present where it must not be, or missing
  kSyndrome,   // reserved
};

// `packet.payload` points into `datagram`. The ICRC is not checked. Unless the result is kOk, the
// content of `packet` is unspecified.
Decoded decode(std::span<const uint8_t> datagram, Packet& packet);

}  // namespace pacecar::roce
