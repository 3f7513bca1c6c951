#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tests/support/wire_reencode.h"
#include "transport/wire/checksum.h"
#include "transport/wire/extended.h"

namespace pacecar::wire::packets_test {
namespace {

using ::testing::ElementsAreArray;

using Packet = std::vector<uint8_t>;

// Golden packets, written by hand from the layout in transport/wire/README.md. Their checksums come
// from an independent CRC-32C (bit by bit).
constexpr std::array<uint8_t, 47> kDataPacket = {
    0xC1, 0x00, 0xFF, 0xFF,                          // opcode, flags, partition key
    0x00, 0x12, 0x34, 0x56,                          // reserved, queue pair
    0x00, 0xAB, 0xCD, 0xEF,                          // reserved, PSN
    0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08,  // address
    0x11, 0x12, 0x13, 0x14,                          // remote key
    0x00, 0x00, 0x10, 0x00,                          // length
    0x21, 0x22, 0x23, 0x24,                          // immediate
    0x31, 0x32, 0x33, 0x00,                          // MSN, flags
    0x41, 0x42, 0x43, 0x44,                          // timestamp
    'a',  'b',  'c',                                 // payload
    0x70, 0x72, 0xF1, 0xFF,                          // checksum
};

constexpr std::array<uint8_t, 72> kAckPacket = {
    0xC2, 0x00, 0xFF, 0xFF, 0x00, 0x65, 0x43, 0x21,  // opcode, partition key, queue pair
    0x00, 0xFF, 0xFF, 0xFE,                          // cumulative
    0x51, 0x52, 0x53, 0x54,                          // echo timestamp
    0x00, 0x00, 0x27, 0x10,                          // hold time
    0x80, 0x00, 0x00, 0x01,                          // received
    0x00, 0x00, 0x00, 0x07,                          // marked
    0x61, 0x62, 0x63, 0x01,                          // echo PSN, hops
    0x00, 0x02, 0x03, 0x00,                          // bitmap words, flags, reserved
    0x80, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02,  // bits 1 and 63
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01,  // bit 64
    0x71, 0x72, 0x73, 0x74, 0x81, 0x82, 0x83, 0x84,  // hop: time, bytes sent
    0x00, 0x01, 0x00, 0x00, 0x00, 0x06, 0x1A, 0x80,  // hop: queue, rate
    0x88, 0x6A, 0x0D, 0x7C,                          // checksum
};

constexpr std::array<uint8_t, kNakBytes + kChecksumBytes> kNakPacket = {
    0xC3, 0x00, 0xFF, 0xFF, 0x00, 0x00, 0x00, 0x01,  // opcode, partition key, queue pair
    0x00, 0x00, 0x00, 0x02,                          // PSN
    0x41, 0x42, 0x43, 0x44,                          // echo timestamp
    0x01, 0x00, 0x00, 0x00,                          // syndrome, reserved
    0x7F, 0x15, 0xF6, 0x6A,                          // checksum
};

const DataHeader kData{.opcode = Opcode::kWriteWithImm,
                       .destination_qp = 0x123456,
                       .psn = 0xABCDEF,
                       .address = 0x0102030405060708,
                       .key = 0x11121314,
                       .length = 4096,
                       .immediate = 0x21222324,
                       .msn = 0x313233,
                       .timestamp = 0x41424344};
const AckHeader kAck{.destination_qp = 0x654321,
                     .cumulative = 0xFFFFFE,
                     .echo_timestamp = 0x51525354,
                     .hold_ns = 10'000,
                     .received = 0x80000001,
                     .marked = 7,
                     .echo_psn = 0x616263,
                     .echo_valid = true,
                     .echo_marked = true};
constexpr std::array<uint64_t, 2> kAckBitmap = {uint64_t{1} << 63 | uint64_t{1} << 1, 1};
constexpr std::array<TelemetryHop, 1> kAckTelemetry = {{{.time_ns = 0x71727374,
                                                         .sent_bytes = 0x81828384,
                                                         .queue_bytes = 65536,
                                                         .rate_mbps = 400'000}}};
constexpr Nak kRefusal{.destination_qp = 1,
                       .psn = 2,
                       .echo_timestamp = 0x41424344,
                       .syndrome = Syndrome::kRemoteAccessError};

bool decodes(std::span<const uint8_t> packet) {
  // A copy of exactly this size, so that the address sanitizer sees every overrun.
  const auto within = body(packet);
  const Packet copy(within.begin(), within.end());
  DataHeader data;
  AckHeader ack;
  Nak nak;
  Bitmap bitmap;
  TelemetryView telemetry;
  std::span<const uint8_t> payload;
  return decode(copy, data, payload) || decode(copy, ack, bitmap, telemetry) || decode(copy, nak);
}

bool decodes_with(std::span<const uint8_t> golden, size_t at, uint8_t value) {
  Packet changed(golden.begin(), golden.end());
  changed.at(at) = value;
  return decodes(changed);
}

TEST(WireData, EncodesTheGoldenBytes) {
  std::array<uint8_t, kDataHeaderBytes> out;
  encode(kData, out);
  EXPECT_THAT(out, ElementsAreArray(std::span(kDataPacket).first<kDataHeaderBytes>()));
}

TEST(WireData, DecodesTheGoldenBytes) {
  DataHeader header;
  std::span<const uint8_t> payload;
  ASSERT_TRUE(decode(body(kDataPacket), header, payload));
  EXPECT_EQ(header, kData);
  EXPECT_EQ(payload.data(), kDataPacket.data() + 40) << "the payload must not be copied";
  EXPECT_THAT(payload, ElementsAreArray({'a', 'b', 'c'}));
}

TEST(WireData, APieceHasItsNumberBehindTheHeader) {
  DataHeader piece = kData;
  piece.pieces = 7;
  piece.piece = 6;
  Packet packet(kPieceHeaderBytes);
  encode_piece(piece, std::span(packet).first<kPieceHeaderBytes>());
  EXPECT_EQ(packet[kFlagsAt], 0x08);
  EXPECT_THAT(std::span(packet).last(4), ElementsAreArray({6, 7, 0, 0}));
  DataHeader header;
  std::span<const uint8_t> payload;
  EXPECT_FALSE(decode(packet, header, payload)) << "no piece is empty";
  packet.push_back('a');
  ASSERT_TRUE(decode(packet, header, payload));
  EXPECT_EQ(header, piece);
  EXPECT_THAT(payload, ElementsAreArray({'a'}));
  for (const auto& [at, value] : {std::pair<size_t, uint8_t>{40, 7},
                                  {41, 6},
                                  {41, 0},
                                  {42, 1},
                                  {43, 1},
                                  {kFlagsAt, 0x09},
                                  {kFlagsAt, 0x0A},
                                  {kFlagsAt, 0x0C}}) {
    Packet changed = packet;
    changed[at] = value;
    EXPECT_FALSE(decode(changed, header, payload)) << at << " " << int{value};
  }
}

TEST(WireData, AQuestionBelongsToNoWrite) {
  const DataHeader question{.question = true, .destination_qp = 0x123456, .timestamp = 0x41424344};
  Packet packet(kDataHeaderBytes + 1000);
  encode(question, std::span(packet).first<kDataHeaderBytes>());
  EXPECT_EQ(packet[kFlagsAt], 0x04);
  DataHeader header;
  std::span<const uint8_t> payload;
  ASSERT_TRUE(decode(packet, header, payload));
  EXPECT_EQ(header, question);
  EXPECT_EQ(payload.size(), 1000U);
  for (const size_t at : {0, 12, 20, 27, 28, 32}) {
    Packet changed = packet;
    changed[at] ^= 1;
    EXPECT_FALSE(decode(changed, header, payload)) << at;
  }
}

TEST(WirePackets, AllBeginAlike) {
  const auto begins = [](std::span<const uint8_t> packet) {
    return (load_be64(packet.data()) & kBeginning.bits) == kBeginning.value;
  };
  EXPECT_TRUE(begins(kDataPacket));
  EXPECT_TRUE(begins(kAckPacket));
  EXPECT_TRUE(begins(kNakPacket));
}

TEST(WireData, NumbersOf24BitsAreCutAndSpillNowhere) {
  DataHeader header = kData;
  header.destination_qp |= 0xFF000000;
  header.psn |= 0xFF000000;
  header.msn |= 0xFF000000;
  std::array<uint8_t, kDataHeaderBytes> out;
  encode(header, out);
  EXPECT_THAT(out, ElementsAreArray(std::span(kDataPacket).first<kDataHeaderBytes>()));
}

TEST(WireData, AWriteOfNothingIsAPacket) {
  std::array<uint8_t, kDataHeaderBytes + kChecksumBytes> packet{};
  encode(DataHeader{}, std::span(packet).first<kDataHeaderBytes>());
  DataHeader header;
  std::span<const uint8_t> payload;
  ASSERT_TRUE(decode(body(packet), header, payload));
  EXPECT_EQ(header, DataHeader{});
  EXPECT_TRUE(payload.empty());
}

TEST(WireData, RefusesEverythingShorterThanAnEmptyPacket) {
  for (size_t size = 0; size < 44; ++size) {
    EXPECT_FALSE(decodes(std::span(kDataPacket).first(size))) << size;
  }
  EXPECT_TRUE(decodes(std::span(kDataPacket).first(44)));
}

TEST(WireData, RefusesAPayloadLargerThanTheWorkRequest) {
  EXPECT_FALSE(decodes_with(kDataPacket, 26, 0)) << "length 0, payload 3";
  Packet packet(kDataPacket.begin(), kDataPacket.end());
  packet[26] = 0;
  packet[27] = 3;
  EXPECT_TRUE(decodes(packet));
  packet[27] = 2;
  EXPECT_FALSE(decodes(packet));
}

TEST(WireData, RefusesMoreThanUdpCanCarry) {
  Packet packet(kMaxDatagramBytes + kChecksumBytes);
  DataHeader header = kData;
  header.length = 1 << 20;
  encode(header, std::span(packet).first<kDataHeaderBytes>());
  EXPECT_TRUE(decodes(packet));
  packet.push_back(0);
  EXPECT_FALSE(decodes(packet));
}

TEST(WireData, RefusesAnImmediateWithoutItsOpcode) {
  EXPECT_FALSE(decodes_with(kDataPacket, 0, 0xC0));
}

TEST(WireData, AWriteTakenBackHasNoPayload) {
  DataHeader sent = kData;
  sent.taken_back = true;
  Packet packet(kDataHeaderBytes + kChecksumBytes);
  encode(sent, std::span(packet).first<kDataHeaderBytes>());
  EXPECT_EQ(packet[35], 1);
  DataHeader received;
  std::span<const uint8_t> payload;
  ASSERT_TRUE(decode(body(packet), received, payload));
  EXPECT_EQ(received, sent);
  packet.push_back(0);
  EXPECT_FALSE(decodes(packet));
}

TEST(WireData, RefusesUnknownFlags) {
  const auto empty = std::span(kDataPacket).first(kDataHeaderBytes + kChecksumBytes);
  for (int flags = 0; flags < 256; ++flags) {
    EXPECT_EQ(decodes_with(empty, 35, static_cast<uint8_t>(flags)), flags <= 3) << flags;
  }
}

TEST(WireBth, RefusesEveryChangeOfTheFixedBits) {
  for (const std::span<const uint8_t> golden :
       {std::span<const uint8_t>(kDataPacket), std::span<const uint8_t>(kAckPacket),
        std::span<const uint8_t>(kNakPacket)}) {
    ASSERT_TRUE(decodes(golden));
    // SE, M, PadCnt, TVer; partition key; FECN, BECN, reserved; A, reserved.
    for (const size_t at : {1, 2, 3, 4, 8}) {
      for (int bit = 0; bit < 8; ++bit) {
        if (at == 8 && bit == 7 && golden[0] == kDataPacket[0]) continue;  // A: see below
        const auto value = static_cast<uint8_t>(golden[at] ^ 1 << bit);
        EXPECT_FALSE(decodes_with(golden, at, value)) << "byte " << at << " bit " << bit;
      }
    }
  }
}

TEST(WireBth, OnlyDataAsksForAnAcknowledgement) {
  EXPECT_TRUE(decodes_with(kDataPacket, 8, 0x80));
  EXPECT_FALSE(decodes_with(kAckPacket, 8, 0x80));
  EXPECT_FALSE(decodes_with(kNakPacket, 8, 0x80));
}

TEST(WireBth, ClassifiesByOpcodeAlone) {
  const auto kind = [](uint8_t opcode) { return classify(std::span(&opcode, 1)); };
  EXPECT_EQ(classify({}), PacketKind::kMalformed);
  for (int opcode = 0; opcode < 256; ++opcode) {
    PacketKind expected = PacketKind::kMalformed;
    if (opcode == 0xC0 || opcode == 0xC1) expected = PacketKind::kData;
    if (opcode == 0xC2) expected = PacketKind::kAck;
    if (opcode == 0xC3) expected = PacketKind::kNak;
    EXPECT_EQ(kind(static_cast<uint8_t>(opcode)), expected) << opcode;
  }
}

TEST(WireBth, DecodersRefuseEveryOtherOpcode) {
  for (int opcode = 0; opcode < 256; ++opcode) {
    const auto value = static_cast<uint8_t>(opcode);
    EXPECT_EQ(decodes_with(kDataPacket, 0, value), opcode == 0xC1) << opcode;
    EXPECT_EQ(decodes_with(kAckPacket, 0, value), opcode == 0xC2) << opcode;
    EXPECT_EQ(decodes_with(kNakPacket, 0, value), opcode == 0xC3) << opcode;
  }
}

TEST(WireAck, EncodesTheGoldenBytes) {
  std::array<uint8_t, ack_bytes(2, 1)> out;
  EXPECT_EQ(encode(kAck, kAckBitmap, kAckTelemetry, out), out.size());
  EXPECT_THAT(out, ElementsAreArray(body(kAckPacket)));
}

TEST(WireAck, DecodesTheGoldenBytes) {
  AckHeader header;
  Bitmap bitmap;
  TelemetryView telemetry;
  ASSERT_TRUE(decode(body(kAckPacket), header, bitmap, telemetry));
  EXPECT_EQ(header, kAck);
  ASSERT_EQ(bitmap.words(), 2U);
  EXPECT_EQ(bitmap[0], kAckBitmap[0]);
  EXPECT_EQ(bitmap[1], kAckBitmap[1]);
  ASSERT_EQ(telemetry.hops(), 1U);
  EXPECT_EQ(telemetry[0], kAckTelemetry[0]);
}

TEST(WireAck, WritesOnlyWhatItReturns) {
  std::array<uint8_t, 100> out;
  out.fill(0xEE);
  ASSERT_EQ(encode(kAck, {}, {}, out), 36U);
  EXPECT_TRUE(std::all_of(out.begin() + 36, out.end(), [](uint8_t b) { return b == 0xEE; }));
}

TEST(WireAck, CarriesTheLargestBitmapAndNoLarger) {
  const std::vector<uint64_t> words(kMaxBitmapWords, ~uint64_t{0});
  Packet packet(ack_bytes(kMaxBitmapWords) + kChecksumBytes);
  encode(kAck, words, {}, packet);
  EXPECT_TRUE(decodes(packet));
  packet.resize(ack_bytes(kMaxBitmapWords + 1) + kChecksumBytes);
  packet[33] = 1;  // 257 words, and as many bytes
  EXPECT_FALSE(decodes(packet));
}

TEST(WireAck, RefusesALengthThatIsNotTheBitmaps) {
  for (size_t size = 0; size < kAckPacket.size(); ++size) {
    EXPECT_FALSE(decodes(std::span(kAckPacket).first(size))) << size;
  }
  EXPECT_FALSE(decodes_with(kAckPacket, 33, 1)) << "one word fewer than there is";
  EXPECT_FALSE(decodes_with(kAckPacket, 33, 3)) << "one word more than there is";
  EXPECT_FALSE(decodes_with(kAckPacket, 32, 1)) << "258 words";
  EXPECT_FALSE(decodes_with(kAckPacket, 31, 0)) << "one hop fewer than there is";
  EXPECT_FALSE(decodes_with(kAckPacket, 31, 2)) << "one hop more than there is";
}

TEST(WireAck, CarriesTheMostHopsAndNoMore) {
  const std::vector<TelemetryHop> hops(kMaxTelemetryHops, kAckTelemetry[0]);
  Packet packet(ack_bytes(0, kMaxTelemetryHops) + kChecksumBytes);
  encode(kAck, {}, hops, packet);
  EXPECT_TRUE(decodes(packet));
  packet.resize(ack_bytes(0, kMaxTelemetryHops + 1) + kChecksumBytes);
  packet[31] = kMaxTelemetryHops + 1;
  EXPECT_FALSE(decodes(packet));
}

TEST(WireAck, RefusesAHopWithoutRate) {
  Packet packet(kAckPacket.begin(), kAckPacket.end());
  std::fill_n(packet.end() - 8, 4, 0);
  EXPECT_FALSE(decodes(packet));
  packet[packet.size() - 5] = 1;
  EXPECT_TRUE(decodes(packet));
}

TEST(WireAck, RefusesAHopWithoutRateBehindOthers) {
  const std::vector<TelemetryHop> hops(3, kAckTelemetry[0]);
  Packet packet(ack_bytes(0, hops.size()) + kChecksumBytes);
  encode(kAck, {}, hops, packet);
  EXPECT_TRUE(decodes(packet));
  std::fill_n(packet.end() - 8, 4, 0);
  EXPECT_FALSE(decodes(packet));
}

TEST(WireAck, RefusesUnknownFlagsAndReservedBits) {
  EXPECT_TRUE(decodes_with(kAckPacket, 34, 0));
  for (int value = 4; value < 256; ++value) {
    EXPECT_FALSE(decodes_with(kAckPacket, 34, static_cast<uint8_t>(value))) << value;
  }
  EXPECT_FALSE(decodes_with(kAckPacket, 35, 1));
}

TEST(WireTrimmed, IsTheHeaderOfADataPacketAlone) {
  DataHeader header;
  const std::span<const uint8_t> packet(kDataPacket);
  ASSERT_TRUE(decode_trimmed(packet.first(kDataHeaderBytes), header));
  EXPECT_EQ(header, kData);
  EXPECT_FALSE(decode_trimmed(packet.first(kDataHeaderBytes - 1), header));
  EXPECT_FALSE(decode_trimmed(packet.first(kDataHeaderBytes + 1), header));
  EXPECT_FALSE(decode_trimmed(packet, header));
  EXPECT_FALSE(decode_trimmed(std::span(kAckPacket).first(kDataHeaderBytes), header));
  Packet unknown_flag(packet.begin(), packet.begin() + kDataHeaderBytes);
  unknown_flag[35] = 4;
  EXPECT_FALSE(decode_trimmed(unknown_flag, header));
}

TEST(WireNak, EncodesTheGoldenBytes) {
  std::array<uint8_t, kNakBytes> out;
  encode(kRefusal, out);
  EXPECT_THAT(out, ElementsAreArray(body(kNakPacket)));
}

TEST(WireNak, DecodesTheGoldenBytes) {
  Nak nak;
  ASSERT_TRUE(decode(body(kNakPacket), nak));
  EXPECT_EQ(nak, kRefusal);
}

TEST(WireNak, RefusesOtherLengthsSyndromesAndReservedBits) {
  for (size_t size = 0; size < kNakPacket.size(); ++size) {
    EXPECT_FALSE(decodes(std::span(kNakPacket).first(size))) << size;
  }
  Packet longer(kNakPacket.begin(), kNakPacket.end());
  longer.push_back(0);
  EXPECT_FALSE(decodes(longer));
  for (int syndrome = 0; syndrome < 256; ++syndrome) {
    const bool known = syndrome >= 1 && syndrome <= 3;
    EXPECT_EQ(decodes_with(kNakPacket, 16, static_cast<uint8_t>(syndrome)), known) << syndrome;
  }
  for (const size_t at : {17, 18, 19}) EXPECT_FALSE(decodes_with(kNakPacket, at, 1));
}

constexpr std::array<uint8_t, 9> kDigits = {'1', '2', '3', '4', '5', '6', '7', '8', '9'};

TEST(WireChecksum, HasTheCheckValueOfCrc32c) {
  EXPECT_EQ(checksum(kDigits, {}, Coverage::kFull), 0xE3069283);
  for (size_t header = 0; header <= kDigits.size(); ++header) {
    const std::span<const uint8_t> all(kDigits);
    EXPECT_EQ(checksum(all.first(header), all.subspan(header), Coverage::kFull), 0xE3069283);
  }
}

TEST(WireChecksum, HeaderCoverageLeavesThePayloadOut) {
  const std::span<const uint8_t> all(kDigits);
  EXPECT_EQ(checksum(all, kDataPacket, Coverage::kHeader), 0xE3069283);
}

TEST(WireChecksum, IsSentWithTheLeastSignificantByteFirst) {
  std::array<uint8_t, kChecksumBytes> out;
  store_checksum(0xE3069283, out);
  EXPECT_THAT(out, ElementsAreArray({0x83, 0x92, 0x06, 0xE3}));
}

TEST(WireChecksum, VerifiesTheGoldenPackets) {
  EXPECT_TRUE(verify_checksum(kDataPacket, kDataHeaderBytes, Coverage::kFull));
  EXPECT_FALSE(verify_checksum(kDataPacket, kDataHeaderBytes, Coverage::kHeader));
  for (const Coverage coverage : {Coverage::kFull, Coverage::kHeader}) {
    EXPECT_TRUE(verify_checksum(kAckPacket, ack_bytes(2, 1), coverage));
    EXPECT_TRUE(verify_checksum(kNakPacket, kNakBytes, coverage));
  }
}

TEST(WireChecksum, RefusesADatagramWithoutRoomForHeaderAndChecksum) {
  const std::array<uint8_t, 4> empty{};  // the checksum of nothing is zero
  EXPECT_TRUE(verify_checksum(empty, 0, Coverage::kFull));
  EXPECT_FALSE(verify_checksum(empty, 1, Coverage::kFull));
  EXPECT_FALSE(verify_checksum(std::span(empty).first(3), 0, Coverage::kFull));
  EXPECT_FALSE(verify_checksum({}, 0, Coverage::kFull));
}

}  // namespace
}  // namespace pacecar::wire::packets_test
