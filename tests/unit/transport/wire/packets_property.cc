#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tests/support/wire_reencode.h"

namespace pacecar::wire::packets_property {
namespace {

using Packet = std::vector<uint8_t>;

template <typename T>
T any() {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<T>());
}

// 24 bits of queue pair number, PSN or MSN.
uint32_t any24() { return *rc::gen::inRange<uint32_t>(0, 1 << 24); }

DataHeader any_data_header(size_t payload_bytes) {
  DataHeader header{.opcode = *rc::gen::element(Opcode::kWrite, Opcode::kWriteWithImm),
                    .ack_request = any<bool>(),
                    .taken_back = payload_bytes == 0 && any<bool>(),
                    .joined = any<bool>(),
                    .destination_qp = any24(),
                    .psn = any24(),
                    .address = any<uint64_t>(),
                    .key = any<uint32_t>(),
                    .length = std::max(any<uint32_t>(), static_cast<uint32_t>(payload_bytes)),
                    .immediate = 0,
                    .msn = any24(),
                    .timestamp = any<uint32_t>()};
  if (header.opcode == Opcode::kWriteWithImm) header.immediate = any<uint32_t>();
  return header;
}

AckHeader any_ack_header() {
  return {.destination_qp = any24(),
          .cumulative = any24(),
          .echo_timestamp = any<uint32_t>(),
          .hold_ns = any<uint32_t>(),
          .received = any<uint32_t>(),
          .marked = any<uint32_t>(),
          .echo_psn = any24(),
          .echo_valid = any<bool>(),
          .echo_marked = any<bool>()};
}

std::vector<TelemetryHop> any_telemetry() {
  std::vector<TelemetryHop> hops(*rc::gen::inRange<size_t>(0, kMaxTelemetryHops + 1));
  for (TelemetryHop& hop : hops) {
    hop = {any<uint32_t>(), any<uint32_t>(), any<uint32_t>(), any<uint32_t>() | 1};
  }
  return hops;
}

Nak any_nak() {
  return {.destination_qp = any24(),
          .psn = any24(),
          .echo_timestamp = any<uint32_t>(),
          .syndrome = *rc::gen::element(Syndrome::kRemoteAccessError, Syndrome::kTrimmed)};
}

std::vector<uint64_t> any_bitmap() {
  const auto words = *rc::gen::inRange<size_t>(0, kMaxBitmapWords + 1);
  return *rc::gen::container<std::vector<uint64_t>>(words, rc::gen::arbitrary<uint64_t>());
}

Packet any_payload() {
  return *rc::gen::oneOf(rc::gen::just(Packet()), rc::gen::arbitrary<Packet>());
}

Coverage any_coverage() { return *rc::gen::element(Coverage::kFull, Coverage::kHeader); }

Packet any_packet() {
  switch (*rc::gen::inRange(0, 3)) {
    case 0: {
      const Packet payload = any_payload();
      return encode_data(any_data_header(payload.size()), payload, Coverage::kFull);
    }
    case 1: return encode_ack(any_ack_header(), any_bitmap(), any_telemetry());
    default: return encode_nak(any_nak());
  }
}

RC_GTEST_PROP(WireProperty, DataComesBack, ()) {
  const Packet payload = any_payload();
  const DataHeader sent = any_data_header(payload.size());
  const Coverage coverage = any_coverage();
  const Packet packet = encode_data(sent, payload, coverage);
  DataHeader received;
  std::span<const uint8_t> bytes;
  RC_ASSERT(classify(packet) == PacketKind::kData);
  RC_ASSERT(decode(body(packet), received, bytes));
  RC_ASSERT(received == sent);
  RC_ASSERT(std::equal(bytes.begin(), bytes.end(), payload.begin(), payload.end()));
  RC_ASSERT(verify_checksum(packet, kDataHeaderBytes, coverage));
  DataHeader trimmed;
  RC_ASSERT(decode_trimmed(std::span(packet).first(kDataHeaderBytes), trimmed));
  RC_ASSERT(trimmed == sent);
}

// The header fields that packets of one write share.
RC_GTEST_PROP(WireProperty, WhatIsAlikeSaysTheSame, ()) {
  const Packet payload = any_payload();
  const DataHeader first = any_data_header(payload.size());
  DataHeader second = first;
  second.psn = any24();
  second.address = any<uint64_t>();
  std::array<uint8_t, kDataHeaderBytes> like;
  std::array<uint8_t, kDataHeaderBytes> alike;
  std::array<uint8_t, kDataHeaderBytes> expected;
  encode(first, like);
  encode(second, expected);
  encode_alike(like, second.psn, second.address, alike);
  RC_ASSERT(alike == expected);

  second.ack_request = any<bool>();
  second.timestamp = any<uint32_t>();
  encode(second, expected);
  Packet packet(expected.begin(), expected.end());
  packet.insert(packet.end(), payload.begin(), payload.end());
  DataHeader read = first;
  std::span<const uint8_t> there;
  RC_ASSERT(decode_alike(packet, like, read, there));
  RC_ASSERT(read == second);
  RC_ASSERT(std::ranges::equal(there, payload));
}

// decode_alike() takes a packet changed on the way only if decode() reads the same from it.
RC_GTEST_PROP(WireProperty, WhatIsTakenForAlikeDecodesToTheSame, ()) {
  const Packet payload = any_payload();
  const DataHeader first = any_data_header(payload.size());
  std::array<uint8_t, kDataHeaderBytes> like;
  encode(first, like);
  Packet packet(like.begin(), like.end());
  packet.insert(packet.end(), payload.begin(), payload.end());
  packet[*rc::gen::inRange<size_t>(0, packet.size())] ^= 1U << *rc::gen::inRange(0, 8);
  if (any<bool>()) packet.resize(*rc::gen::inRange<size_t>(0, packet.size() + 1));
  DataHeader quick = first;
  std::span<const uint8_t> quick_payload;
  if (!decode_alike(packet, like, quick, quick_payload)) RC_SUCCEED("left to decode()");
  DataHeader read;
  std::span<const uint8_t> read_payload;
  RC_ASSERT(decode(packet, read, read_payload));
  RC_ASSERT(read == quick);
  RC_ASSERT(read_payload.size() == quick_payload.size());
}

RC_GTEST_PROP(WireProperty, AcknowledgementsComeBack, ()) {
  const AckHeader sent = any_ack_header();
  const auto words = any_bitmap();
  const auto hops = any_telemetry();
  const Packet packet = encode_ack(sent, words, hops);
  AckHeader received;
  Bitmap bitmap;
  RC_ASSERT(classify(packet) == PacketKind::kAck);
  TelemetryView telemetry;
  RC_ASSERT(decode(body(packet), received, bitmap, telemetry));
  RC_ASSERT(received == sent);
  RC_ASSERT(bitmap.words() == words.size());
  for (size_t i = 0; i < words.size(); ++i) RC_ASSERT(bitmap[i] == words[i]);
  RC_ASSERT(telemetry.hops() == hops.size());
  for (size_t i = 0; i < hops.size(); ++i) RC_ASSERT(telemetry[i] == hops[i]);
  RC_ASSERT(verify_checksum(packet, packet.size() - kChecksumBytes, any_coverage()));
}

RC_GTEST_PROP(WireProperty, JoinedAcknowledgementsComeApart, ()) {
  const Packet payload = any_payload();
  DataHeader header = any_data_header(payload.size());
  header.joined = true;
  std::vector<Packet> sent{encode_data(header, payload, any_coverage())};
  Packet all = sent[0];
  for (auto left = *rc::gen::inRange(0, 5); left > 0; --left) {
    sent.push_back(encode_ack(any_ack_header(), any_bitmap(), any_telemetry()));
    all.insert(all.end(), sent.back().begin(), sent.back().end());
  }
  const size_t joined = all.size() - sent[0].size();
  all.push_back(static_cast<uint8_t>(joined >> 8));
  all.push_back(static_cast<uint8_t>(joined));
  std::span<const uint8_t> rest = all;
  for (const Packet& packet : sent) {
    const auto first = take_first(rest, classify(rest), kChecksumBytes);
    RC_ASSERT(std::equal(first.begin(), first.end(), packet.begin(), packet.end()));
  }
  RC_ASSERT(rest.empty());
}

// Each step takes something and goes beyond nothing, whatever the bytes say of themselves.
RC_GTEST_PROP(WireProperty, WhateverIsTakenApartLiesWithin, ()) {
  Packet bytes = any_packet();
  const Packet more = any_payload();
  bytes.insert(bytes.end(), more.begin(), more.end());
  std::span<const uint8_t> rest = bytes;
  const uint8_t* at = bytes.data();
  while (!rest.empty()) {
    const auto first = take_first(rest, classify(rest), kChecksumBytes);
    RC_ASSERT(first.data() == at && !first.empty());
    at += first.size();
    RC_ASSERT(rest.size() <= bytes.size() - static_cast<size_t>(at - bytes.data()));
  }
}

RC_GTEST_PROP(WireProperty, RefusalsComeBack, ()) {
  const Nak sent = any_nak();
  const Packet packet = encode_nak(sent);
  Nak received;
  RC_ASSERT(classify(packet) == PacketKind::kNak);
  RC_ASSERT(decode(body(packet), received));
  RC_ASSERT(received == sent);
  RC_ASSERT(verify_checksum(packet, kNakBytes, any_coverage()));
}

// CRC-32C detects every change inside 32 consecutive bits, so also every single bit; it ignores
// changes outside the coverage.
RC_GTEST_PROP(WireProperty, TheChecksumSeesEveryShortChangeOfWhatItCovers, ()) {
  const Packet payload = any_payload();
  const Coverage coverage = any_coverage();
  Packet packet = encode_data(any_data_header(payload.size()), payload, coverage);
  const auto start = *rc::gen::inRange<size_t>(0, 8 * packet.size());
  const auto pattern = any<uint32_t>() | 1;
  bool covered_changed = false;
  for (size_t i = 0; i < 32 && start + i < 8 * packet.size(); ++i) {
    if ((pattern >> i & 1) == 0) continue;
    const size_t at = (start + i) / 8;
    packet[at] = static_cast<uint8_t>(packet[at] ^ 1 << (start + i) % 8);
    const bool in_payload = at >= kDataHeaderBytes && at < kDataHeaderBytes + payload.size();
    covered_changed |= coverage == Coverage::kFull || !in_payload;
  }
  RC_ASSERT(verify_checksum(packet, kDataHeaderBytes, coverage) == !covered_changed);
}

RC_GTEST_PROP(WireProperty, EverySingleBitCounts, ()) {
  Packet packet = any_packet();
  const size_t body = packet.size() - kChecksumBytes;
  for (size_t bit = 0; bit < 8 * packet.size(); ++bit) {
    const auto mask = static_cast<uint8_t>(1 << bit % 8);
    packet[bit / 8] ^= mask;
    RC_ASSERT(!verify_checksum(packet, body, Coverage::kHeader));
    packet[bit / 8] ^= mask;
  }
}

// Damage of a few bytes passes the decoders more often than random bytes do.
RC_GTEST_PROP(WireProperty, WhatDecodesEncodesBackToTheSameBytes, ()) {
  Packet packet = any_packet();
  const auto changes = *rc::gen::inRange(0, 4);
  for (int i = 0; i < changes; ++i) {
    const auto header = std::min(packet.size(), kDataHeaderBytes);
    packet[*rc::gen::inRange<size_t>(0, header)] = any<uint8_t>();
  }
  if (any<bool>()) packet.resize(*rc::gen::inRange<size_t>(0, packet.size() + 1));
  const auto again = reencode(packet);
  RC_TAG(again.has_value() ? "accepted" : "refused");
  if (!again) return;
  RC_ASSERT(again->size() == packet.size());
  RC_ASSERT(std::equal(packet.begin(), packet.end() - kChecksumBytes, again->begin()));
}

RC_GTEST_PROP(WireProperty, AnyBytesAreAnsweredNotObeyed, (const Packet& bytes)) {
  DataHeader data;
  AckHeader ack;
  Nak nak;
  std::span<const uint8_t> payload;
  Bitmap bitmap;
  TelemetryView telemetry;
  const auto packet = body(bytes);
  const int accepted =
      decode(packet, data, payload) + decode(packet, ack, bitmap, telemetry) + decode(packet, nak);
  RC_ASSERT(accepted == (reencode(bytes) ? 1 : 0));
}

}  // namespace
}  // namespace pacecar::wire::packets_property
