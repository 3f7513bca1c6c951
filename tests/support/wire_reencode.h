// Decodes a datagram by its opcode and encodes the result again: a reference for tests of the
// decoders with arbitrary bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <vector>

#include "transport/wire/checksum.h"
#include "transport/wire/extended.h"

namespace pacecar::wire {

// A packet without its checksum.
inline std::span<const uint8_t> body(std::span<const uint8_t> packet) {
  return packet.first(packet.size() - std::min(packet.size(), kChecksumBytes));
}

inline std::vector<uint8_t> encode_data(const DataHeader& header, std::span<const uint8_t> payload,
                                        Coverage coverage) {
  std::vector<uint8_t> packet(kPieceHeaderBytes);
  if (header.pieces == 0) {
    packet.resize(kDataHeaderBytes);
    encode(header, std::span(packet).first<kDataHeaderBytes>());
  } else {
    encode_piece(header, std::span(packet).first<kPieceHeaderBytes>());
  }
  const uint32_t sum = checksum(packet, payload, coverage);
  packet.insert(packet.end(), payload.begin(), payload.end());
  packet.resize(packet.size() + kChecksumBytes);
  store_checksum(sum, std::span(packet).last<kChecksumBytes>());
  return packet;
}

// Ends a packet without payload: its last four bytes are the checksum.
inline void end_with_checksum(std::span<uint8_t> packet) {
  const auto header = packet.first(packet.size() - kChecksumBytes);
  store_checksum(checksum(header, {}, Coverage::kHeader), packet.last<kChecksumBytes>());
}

inline std::vector<uint8_t> encode_ack(const AckHeader& header, std::span<const uint64_t> bitmap,
                                       std::span<const TelemetryHop> telemetry = {}) {
  const size_t size = ack_bytes(bitmap.size(), telemetry.size());
  std::vector<uint8_t> packet(size + kChecksumBytes);
  if (encode(header, bitmap, telemetry, packet) != size) std::abort();
  end_with_checksum(packet);
  return packet;
}

inline std::vector<uint8_t> encode_nak(const Nak& nak) {
  std::vector<uint8_t> packet(kNakBytes + kChecksumBytes);
  encode(nak, std::span(packet).first<kNakBytes>());
  end_with_checksum(packet);
  return packet;
}

// nullopt when the datagram is refused. The checksum is computed anew, with full coverage.
inline std::optional<std::vector<uint8_t>> reencode(std::span<const uint8_t> datagram) {
  switch (classify(datagram)) {
    case PacketKind::kData: {
      DataHeader header;
      std::span<const uint8_t> payload;
      if (!decode(body(datagram), header, payload)) return std::nullopt;
      return encode_data(header, payload, Coverage::kFull);
    }
    case PacketKind::kAck: {
      AckHeader header;
      Bitmap bitmap;
      TelemetryView telemetry;
      if (!decode(body(datagram), header, bitmap, telemetry)) return std::nullopt;
      std::vector<uint64_t> words(bitmap.words());
      for (size_t i = 0; i < words.size(); ++i) words[i] = bitmap[i];
      std::vector<TelemetryHop> hops(telemetry.hops());
      for (size_t i = 0; i < hops.size(); ++i) hops[i] = telemetry[i];
      return encode_ack(header, words, hops);
    }
    case PacketKind::kNak: {
      Nak nak;
      if (!decode(body(datagram), nak)) return std::nullopt;
      return encode_nak(nak);
    }
    case PacketKind::kMalformed: break;
  }
  return std::nullopt;
}

}  // namespace pacecar::wire
