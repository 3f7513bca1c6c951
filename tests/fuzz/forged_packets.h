// Captured packets with fields of the fuzzer's choice, and the right checksums.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "tests/fuzz/fuzz_input.h"
#include "tests/support/wire_reencode.h"
#include "transport/wire/roce.h"

namespace pacecar::fuzz {

inline void change_data(wire::DataHeader& data, Input& input) {
  const uint8_t which = input.u8();
  if ((which & 1) != 0) data.psn = (data.psn + input.u16() - 64) & 0xFFFFFF;
  if ((which & 2) != 0) data.address += input.u16() - 4096ULL;
  if ((which & 4) != 0) data.key ^= input.u32();
  if ((which & 8) != 0) data.length = input.u32();
  if ((which & 16) != 0) data.msn = (data.msn + input.u8() - 16) & 0xFFFFFF;
  if ((which & 32) != 0) data.taken_back = true;
  if ((which & 64) != 0) data.ack_request = !data.ack_request;
  if ((which & 128) != 0) {
    data.opcode = wire::Opcode::kWriteWithImm;
    data.immediate = input.u8();
  }
}
inline void change_ack(wire::AckHeader& ack, Input& input) {
  const uint8_t which = input.u8();
  if ((which & 1) != 0) ack.cumulative = (ack.cumulative + input.u8() - 32) & 0xFFFFFF;
  if ((which & 2) != 0) ack.echo_psn = (ack.echo_psn + input.u8() - 32) & 0xFFFFFF;
  if ((which & 4) != 0) ack.echo_timestamp += input.u32();
  if ((which & 8) != 0) ack.hold_ns = input.u32();
  if ((which & 16) != 0) ack.received += input.u32();
  if ((which & 32) != 0) ack.marked = input.u32();
  if ((which & 64) != 0) ack.echo_valid = !ack.echo_valid;
}

// Changes a packet of the extended mode, given without its trailer; the result ends with a
// checksum.
inline std::vector<uint8_t> changed_body(std::span<const uint8_t> body, Input& input) {
  wire::DataHeader data;
  std::span<const uint8_t> payload;
  if (wire::decode(body, data, payload)) {
    change_data(data, input);
    if (data.taken_back) payload = {};
    if (data.taken_back || data.question) data.pieces = 0;
    data.length = std::max(data.length, static_cast<uint32_t>(payload.size()));
    return wire::encode_data(data, payload, wire::Coverage::kFull);
  }
  wire::AckHeader ack;
  wire::Bitmap bitmap;
  wire::TelemetryView telemetry;
  if (wire::decode(body, ack, bitmap, telemetry)) {
    std::vector<uint64_t> words(input.u8() % 4);
    for (uint64_t& word : words) word = input.u64();
    change_ack(ack, input);
    return wire::encode_ack(ack, words);
  }
  wire::Nak nak;
  if (wire::decode(body, nak)) {
    nak.psn += input.u8() - 128U;
    nak.syndrome = wire::Syndrome{static_cast<uint8_t>(1 + input.u8() % 3)};
    return wire::encode_nak(nak);
  }
  std::vector<uint8_t> copy(body.begin(), body.end());
  copy.resize(copy.size() + wire::kChecksumBytes);
  return copy;
}

// Changes a packet of standard RC.
inline void change_packet(roce::Packet& packet, Input& input) {
  const uint8_t which = input.u8();
  if ((which & 1) != 0) packet.psn = (packet.psn + input.u8() - 32) & 0xFFFFFF;
  if ((which & 2) != 0) packet.address += input.u16() - 4096ULL;
  if ((which & 4) != 0) packet.key ^= input.u32();
  if ((which & 8) != 0) packet.length = input.u32();
  if ((which & 16) != 0) packet.msn = input.u32() & 0xFFFFFF;
  if ((which & 32) != 0) packet.syndrome = input.u8();
  if ((which & 64) != 0) packet.ack_request = !packet.ack_request;
  if ((which & 128) != 0) packet.opcode = static_cast<roce::Opcode>(input.u8());
}

}  // namespace pacecar::fuzz
