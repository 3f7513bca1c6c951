#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

#include "transport/wire/address.h"
#include "transport/wire/checksum.h"
#include "transport/wire/icrc.h"
#include "transport/wire/roce.h"

namespace pacecar::roce::roce_property {
namespace {

Address any_address(bool ipv4) {
  Address address;
  for (uint8_t& byte : address.ip) byte = *rc::gen::arbitrary<uint8_t>();
  address.ip[0] = 0xFD;
  if (ipv4) std::ranges::copy(kIpv4Prefix, address.ip.begin());
  address.port = *rc::gen::arbitrary<uint16_t>();
  return address;
}

uint32_t any24() { return *rc::gen::inRange<uint32_t>(0, 1 << 24); }

Packet any_packet(std::span<const uint8_t> payload) {
  Packet packet;
  const int number = *rc::gen::inRange(0, 0x19);
  packet.opcode = static_cast<Opcode>(number < 0x15   ? number
                                      : number < 0x17 ? number - 0x15 + 0x64
                                                      : number - 1);
  const Shape shape = shape_of(packet.opcode);
  const bool message =
      (shape.kind == Kind::kSend && !shape.invalidate) || shape.kind == Kind::kWrite;
  packet.unreliable = message && *rc::gen::arbitrary<bool>();
  packet.ack_request = *rc::gen::arbitrary<bool>();
  packet.solicited = *rc::gen::arbitrary<bool>();
  packet.destination_qp = any24();
  packet.psn = any24();
  const bool carries = shape.kind != Kind::kAck && shape.kind != Kind::kReadRequest &&
                       shape.kind != Kind::kAtomic && shape.kind != Kind::kAtomicAck;
  if (carries) packet.payload = payload;
  const bool response = shape.kind == Kind::kReadResponse && (shape.first || shape.last);
  if (shape.kind == Kind::kAck || shape.kind == Kind::kAtomicAck || response) {
    packet.syndrome = *rc::gen::elementOf(
        std::vector<uint8_t>{0, kAckUnlimited, kNakSequence, receiver_not_ready(kUsualRnrDelay)});
    packet.msn = any24();
  }
  if (shape.kind == Kind::kReadRequest || (shape.kind == Kind::kWrite && shape.first)) {
    packet.address = *rc::gen::arbitrary<uint64_t>();
    packet.key = *rc::gen::arbitrary<uint32_t>();
    packet.length = *rc::gen::arbitrary<uint32_t>();
  }
  if (shape.kind == Kind::kAtomic) {
    packet.address = *rc::gen::arbitrary<uint64_t>();
    packet.key = *rc::gen::arbitrary<uint32_t>();
    packet.operand = *rc::gen::arbitrary<uint64_t>();
    packet.compare = *rc::gen::arbitrary<uint64_t>();
  }
  if (shape.kind == Kind::kAtomicAck) packet.original = *rc::gen::arbitrary<uint64_t>();
  if (shape.kind == Kind::kDatagram) {
    packet.queue_key = *rc::gen::arbitrary<uint32_t>();
    packet.source_qp = any24();
  }
  if (shape.immediate) packet.immediate = *rc::gen::arbitrary<uint32_t>();
  if (shape.invalidate) packet.invalidated_key = *rc::gen::arbitrary<uint32_t>();
  return packet;
}

std::vector<uint8_t> bytes_of(const Packet& packet, const Route& route) {
  std::vector<uint8_t> bytes(header_bytes(packet.opcode));
  encode(packet, bytes);
  bytes.insert(bytes.end(), packet.payload.begin(), packet.payload.end());
  bytes.resize(bytes.size() + pad_bytes(packet.payload.size()));
  const uint32_t sum = icrc(route, bytes, {}, {});
  bytes.resize(bytes.size() + kIcrcBytes);
  wire::store_checksum(sum, std::span(bytes).last<kIcrcBytes>());
  return bytes;
}

RC_GTEST_PROP(Roce, EncodedPacketDecodesToTheSame, ()) {
  const auto payload = *rc::gen::nonEmpty<std::vector<uint8_t>>();
  const bool ipv4 = *rc::gen::arbitrary<bool>();
  const Address source = any_address(ipv4);
  const Address destination = any_address(ipv4);
  const Route route{source, destination};
  const Packet sent = any_packet(payload);
  const auto bytes = bytes_of(sent, route);
  RC_ASSERT(bytes.size() % 4 == 0U);
  Packet got;
  RC_ASSERT(decode(bytes, got) == Decoded::kOk);
  RC_ASSERT(verify_icrc(route, bytes));
  RC_ASSERT(got.unreliable == sent.unreliable && got.invalidated_key == sent.invalidated_key);
  RC_ASSERT(got.opcode == sent.opcode && got.ack_request == sent.ack_request);
  RC_ASSERT(got.destination_qp == sent.destination_qp && got.psn == sent.psn);
  RC_ASSERT(got.msn == sent.msn && got.syndrome == sent.syndrome);
  RC_ASSERT(got.address == sent.address && got.key == sent.key && got.length == sent.length);
  RC_ASSERT(got.immediate == sent.immediate && got.solicited == sent.solicited);
  RC_ASSERT(got.operand == sent.operand && got.compare == sent.compare);
  RC_ASSERT(got.original == sent.original);
  RC_ASSERT(got.queue_key == sent.queue_key && got.source_qp == sent.source_qp);
  RC_ASSERT(
      std::equal(got.payload.begin(), got.payload.end(), sent.payload.begin(), sent.payload.end()));
}

RC_GTEST_PROP(Roce, FlippedBitFailsTheIcrc, ()) {
  const auto payload = *rc::gen::nonEmpty<std::vector<uint8_t>>();
  const Address source = any_address(true);
  const Address destination = any_address(true);
  const Route route{source, destination};
  auto bytes = bytes_of(any_packet(payload), route);
  const auto bit = *rc::gen::inRange<size_t>(0, bytes.size() * 8);
  if (bit / 8 == 4) return;  // the ICRC does not cover this byte
  bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
  RC_ASSERT(!verify_icrc(route, bytes));
}

}  // namespace
}  // namespace pacecar::roce::roce_property
