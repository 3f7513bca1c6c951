// The packets of the extended wire mode: shaped like RoCE v2 packets, with opcodes that InfiniBand
// reserves for manufacturers. Every data packet carries the remote address of its payload, so
// packets may arrive in any order. README.md has the layout. A packet ends with a trailer, of one
// size for all packets of a NIC: a checksum, or a tag that authenticates the sender. Encoders and
// decoders get the packet without the trailer. Decoders accept any bytes and refuse packets that no
// encoder writes: an accepted one, encoded again, is the same bytes. Encoders write the low 24 bits
// of queue pair numbers, PSNs and MSNs. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/base/telemetry.h"
#include "transport/wire/big_endian.h"

namespace pacecar::wire {

// Manufacturer specific opcodes (InfiniBand Architecture Specification vol. 1, 9.2.1).
enum class Opcode : uint8_t {
  kWrite = 0xC0,
  kWriteWithImm = 0xC1,
  kAck = 0xC2,
  kNak = 0xC3,
};

// The first 8 bytes of every packet, as a word: all packets agree in `bits` (of the opcode and of
// the BTH's constant fields), and `value` is the value of these bits.
struct Beginning {
  uint64_t bits = 0;
  uint64_t value = 0;
};
inline constexpr Beginning kBeginning{0xFCFF'FFFF'FF00'0000, 0xC000'FFFF'0000'0000};

inline constexpr size_t kBthBytes = 12;
inline constexpr size_t kDataHeaderBytes = 40;  // BTH, RETH, extended data header
inline constexpr size_t kPieceHeaderBytes = kDataHeaderBytes + 4;
inline constexpr size_t kAckHeaderBytes = 36;  // without bitmap and telemetry
inline constexpr size_t kTelemetryHopBytes = 16;
inline constexpr size_t kNakBytes = 20;
inline constexpr size_t kJoinedBytes = 2;  // ends a datagram of several packets
inline constexpr size_t kMaxBitmapWords = 256;
inline constexpr size_t kMaxDatagramBytes = 65527;  // UDP over IPv6 without jumbograms (RFC 8200)

constexpr size_t ack_bytes(size_t bitmap_words, size_t hops = 0) {
  return kAckHeaderBytes + 8 * bitmap_words + kTelemetryHopBytes * hops;
}

enum class PacketKind : uint8_t { kData, kAck, kNak, kMalformed };

// Which decoder to call, by the opcode alone; the decoder checks the rest.
inline PacketKind classify(std::span<const uint8_t> datagram) {
  if (datagram.empty()) return PacketKind::kMalformed;
  switch (static_cast<Opcode>(datagram[0])) {
    case Opcode::kWrite:
    case Opcode::kWriteWithImm: return PacketKind::kData;
    case Opcode::kAck: return PacketKind::kAck;
    case Opcode::kNak: return PacketKind::kNak;
  }
  return PacketKind::kMalformed;
}

// One packet of a write.
struct DataHeader {
  Opcode opcode = Opcode::kWrite;  // kWrite or kWriteWithImm
  // The sender needs an acknowledgement to continue: the receiver should not wait for more packets.
  bool ack_request = false;
  // The sender takes the write back: this packet has no payload, and only occupies its PSN.
  bool taken_back = false;
  bool joined = false;  // other packets follow in the datagram: take_first
  // Belongs to no write, and has any payload: the receiver answers with its size (PathMtu).
  bool question = false;
  // Not 0: the packet is sent in this many pieces, each with the same PSN, because it is too large
  // for its path. This is piece number `piece`, counted from 0.
  uint8_t pieces = 0;
  uint8_t piece = 0;
  uint32_t destination_qp = 0;
  uint32_t psn = 0;
  uint64_t address = 0;    // remote address of this packet's payload
  uint32_t key = 0;        // remote key
  uint32_t length = 0;     // bytes of the whole work request; at least this packet's payload
  uint32_t immediate = 0;  // 0 for kWrite
  uint32_t msn = 0;        // writes with immediate of this queue pair, counted from its start
  uint32_t timestamp = 0;  // low 32 bits of the sender's clock in ns, at sending

  bool operator==(const DataHeader&) const = default;
};

// The payload and the trailer follow the header.
void encode(const DataHeader& header, std::span<uint8_t, kDataHeaderBytes> to);
// With `pieces`.
void encode_piece(const DataHeader& header, std::span<uint8_t, kPieceHeaderBytes> to);
// Writes the header of another packet of the same write, with the flags of `like`.
void encode_alike(std::span<const uint8_t, kDataHeaderBytes> like, uint32_t psn, uint64_t address,
                  std::span<uint8_t, kDataHeaderBytes> to);
// `payload` points into `packet`. On false the outputs are unspecified.
bool decode(std::span<const uint8_t> packet, DataHeader& header, std::span<const uint8_t>& payload);
// Whether a packet has the same fields as `like` that all packets of one write share: opcode, queue
// pair, key, length, immediate, MSN, flags.
inline bool same_write(std::span<const uint8_t> packet,
                       std::span<const uint8_t, kDataHeaderBytes> like) {
  constexpr size_t kKeyAt = 20;        // and length
  constexpr size_t kImmediateAt = 28;  // and MSN and flags, which distinguish small writes
  if (packet.size() < kDataHeaderBytes) return false;
  const auto same = [&](size_t at) { return load_be64(&packet[at]) == load_be64(&like[at]); };
  return same(kImmediateAt) && same(0) && same(kKeyAt);
}
// Decodes a packet that belongs to the same write as `like`, a packet that decode() has accepted,
// and has the same flags; that takes only a few comparisons. `header`: on entry of `like`, on
// return of this packet. On false `header` is unchanged: call decode().
bool decode_alike(std::span<const uint8_t> packet, std::span<const uint8_t, kDataHeaderBytes> like,
                  DataHeader& header, std::span<const uint8_t>& payload);
// A data packet that a switch has trimmed to its header. No trailer authenticates it.
bool decode_trimmed(std::span<const uint8_t> datagram, DataHeader& header);

// The position of a data packet's flags, and the flag for further packets in the datagram.
inline constexpr size_t kFlagsAt = 35;
inline constexpr uint32_t kDataJoined = 0x02;
// By its flag, the data packet is the only packet of its datagram.
inline bool stands_alone(std::span<const uint8_t> data) {
  return data.size() <= kFlagsAt || (data[kFlagsAt] & kDataJoined) == 0;
}

// Takes the first packet, with its trailer of `trailer_bytes`, off a datagram. Other packets may
// follow a data packet (`joined`) or an acknowledgement; behind packets that follow a data packet,
// the last two bytes of the datagram are their total length. `kind`: the result of classify().
std::span<const uint8_t> take_first(std::span<const uint8_t>& datagram, PacketKind kind,
                                    size_t trailer_bytes);

// What a receiver has received: all packets before `cumulative`, and the later ones marked in the
// bitmap. The echo (time stamp, PSN, mark, telemetry) is of one packet, the newest.
struct AckHeader {
  uint32_t destination_qp = 0;
  uint32_t cumulative = 0;      // the next PSN that the receiver expects
  uint32_t echo_timestamp = 0;  // of the packet that caused this acknowledgement
  uint32_t hold_ns = 0;         // from that packet's arrival to this acknowledgement
  uint32_t received = 0;        // packets accepted so far, without duplicates; wraps
  uint32_t marked = 0;          // accepted packets with ECN congestion; wraps
  uint32_t echo_psn = 0;        // of that packet
  bool echo_valid = false;      // whether echo_... and hold_ns are meaningful
  bool echo_marked = false;     // that packet had ECN congestion

  bool operator==(const AckHeader&) const = default;
};

// A bitmap inside a received acknowledgement: bit i of word w, bit 0 being the least significant,
// means that PSN cumulative + 64 * w + i has arrived. Valid as long as the datagram.
class Bitmap {
 public:
  Bitmap() = default;
  explicit Bitmap(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  size_t words() const { return bytes_.size() / 8; }
  uint64_t operator[](size_t word) const { return load_be64(&bytes_[8 * word]); }

 private:
  std::span<const uint8_t> bytes_;
};

// The telemetry inside a received acknowledgement. Valid as long as the datagram.
class TelemetryView {
 public:
  TelemetryView() = default;
  explicit TelemetryView(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  size_t hops() const { return bytes_.size() / kTelemetryHopBytes; }
  TelemetryHop operator[](size_t hop) const {
    const uint8_t* from = &bytes_[kTelemetryHopBytes * hop];
    return {load_be32(from), load_be32(from + 4), load_be32(from + 8), load_be32(from + 12)};
  }
  bool valid() const;  // False: a hop has rate 0, which no port has.

 private:
  std::span<const uint8_t> bytes_;
};

// Writes kTelemetryHopBytes for each hop.
void store_telemetry(std::span<const TelemetryHop> hops, uint8_t* to);

// Writes the packet and returns its size, ack_bytes(bitmap.size(), telemetry.size()), which `to`
// must hold. At most kMaxBitmapWords words and kMaxTelemetryHops hops, none with rate 0.
size_t encode(const AckHeader& header, std::span<const uint64_t> bitmap,
              std::span<const TelemetryHop> telemetry, std::span<uint8_t> to);
bool decode(std::span<const uint8_t> packet, AckHeader& header, Bitmap& bitmap,
            TelemetryView& telemetry);

enum class Syndrome : uint8_t {
  kRemoteAccessError = 1,
  kTrimmed = 2,   // only its header has arrived
  kQuestion = 3,  // it was a question, and has arrived
};

// The refusal of one data packet.
struct Nak {
  uint32_t destination_qp = 0;
  uint32_t psn = 0;             // of the refused packet; of a question: the bytes of its datagram
  uint32_t echo_timestamp = 0;  // of the refused packet: identifies the transmission
  Syndrome syndrome = Syndrome::kRemoteAccessError;

  bool operator==(const Nak&) const = default;
};

void encode(const Nak& nak, std::span<uint8_t, kNakBytes> to);
bool decode(std::span<const uint8_t> packet, Nak& nak);

}  // namespace pacecar::wire
