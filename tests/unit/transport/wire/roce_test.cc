#include "transport/wire/roce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <vector>

#include "transport/wire/icrc.h"

namespace pacecar::roce::roce_test {
namespace {

std::vector<uint8_t> from_hex(std::string_view text) {
  std::vector<uint8_t> bytes(text.size() / 2);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::from_chars(text.data() + 2 * i, text.data() + 2 * i + 2, bytes[i], 16);
  }
  return bytes;
}

constexpr Address kIpv4Sender{.ip = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 77, 0, 1},
                              .port = 52534};
constexpr Address kIpv4Receiver{.ip = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 77, 0, 2},
                                .port = kUdpPort};
constexpr Address kIpv6Sender{.ip = {0xFD, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
                              .port = 60617};
constexpr Address kIpv6Receiver{.ip = {0xFD, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2},
                                .port = kUdpPort};

// A packet that Linux's rdma_rxe has sent; fragment is the second word of its IPv4 header.
struct Golden {
  const char* name;
  bool ipv4;
  uint32_t fragment;
  const char* datagram;
  Packet packet;
  std::vector<uint8_t> payload;
};

const std::vector<Golden> kGolden = {
    {"ack_ipv4",
     true,
     0x70684000,
     "1100ffff009fe00000d8ee9c1f0000016d1cf6b3",
     {.opcode = Opcode::kAck,
      .syndrome = kAckUnlimited,
      .destination_qp = 0x9FE000,
      .psn = 0xD8EE9C,
      .msn = 1},
     {}},
    {"send_only_ipv4",
     true,
     0x70AA4000,
     "0400ffff009fe0008049308eabb640d6",
     {.opcode = Opcode::kSendOnly,
      .ack_request = true,
      .destination_qp = 0x9FE000,
      .psn = 0x49308E},
     {}},
    {"send_last_ipv4",
     true,
     0x73D74000,
     "0230ffff009fe0008049309d2e000000e9684893",
     {.opcode = Opcode::kSendLast,
      .ack_request = true,
      .destination_qp = 0x9FE000,
      .psn = 0x49309D},
     {0x2E}},
    {"write_only_imm",
     false,
     0,
     "0b00ffff00f9ea00808e1ee900007f2c9c28a01042814ccb00000000c0de0000df208883",
     {.opcode = Opcode::kWriteOnlyImm,
      .ack_request = true,
      .destination_qp = 0xF9EA00,
      .psn = 0x8E1EE9,
      .address = 0x7F2C9C28A010,
      .key = 0x42814CCB,
      .length = 0,
      .immediate = 0xC0DE0000},
     {}},
    {"write_last_imm",
     false,
     0,
     "0930ffff00f9ea00808e1ef8c0de10017e0000002bafde07",
     {.opcode = Opcode::kWriteLastImm,
      .ack_request = true,
      .destination_qp = 0xF9EA00,
      .psn = 0x8E1EF8,
      .immediate = 0xC0DE1001},
     {0x7E}},
    {"read_request",
     false,
     0,
     "0c00ffff00f9ea00808e212b00007f2c9c38c01006498736000000002cf94c90",
     {.opcode = Opcode::kReadRequest,
      .ack_request = true,
      .destination_qp = 0xF9EA00,
      .psn = 0x8E212B,
      .address = 0x7F2C9C38C010,
      .key = 0x06498736},
     {}},
    {"read_last",
     false,
     0,
     "0f30ffff00f9ea00007d426e1f00004ba50000004261bd2d",
     {.opcode = Opcode::kReadLast,
      .syndrome = kAckUnlimited,
      .destination_qp = 0xF9EA00,
      .psn = 0x7D426E,
      .msn = 0x4B},
     {0xA5}},
};

Route route_of(const Golden& golden) {
  if (golden.ipv4) return {kIpv4Sender, kIpv4Receiver, golden.fragment};
  return {kIpv6Sender, kIpv6Receiver};
}

void expect_same(const Packet& a, const Packet& b) {
  EXPECT_EQ(a.opcode, b.opcode);
  EXPECT_EQ(a.ack_request, b.ack_request);
  EXPECT_EQ(a.syndrome, b.syndrome);
  EXPECT_EQ(a.destination_qp, b.destination_qp);
  EXPECT_EQ(a.psn, b.psn);
  EXPECT_EQ(a.msn, b.msn);
  EXPECT_EQ(a.address, b.address);
  EXPECT_EQ(a.key, b.key);
  EXPECT_EQ(a.length, b.length);
  EXPECT_EQ(a.immediate, b.immediate);
}

class RoceGolden : public testing::TestWithParam<Golden> {};

TEST_P(RoceGolden, Decodes) {
  const auto bytes = from_hex(GetParam().datagram);
  Packet packet;
  ASSERT_EQ(decode(bytes, packet), Decoded::kOk);
  expect_same(packet, GetParam().packet);
  EXPECT_THAT(std::vector(packet.payload.begin(), packet.payload.end()),
              testing::ElementsAreArray(GetParam().payload));
}

TEST_P(RoceGolden, IcrcIsVerified) {
  const auto bytes = from_hex(GetParam().datagram);
  EXPECT_TRUE(verify_icrc(route_of(GetParam()), bytes));
  for (size_t i = 0; i < bytes.size(); ++i) {
    auto other = bytes;
    other[i] ^= 0x10;
    const bool congestion_bits = i == 4;  // FECN and BECN may change on the way
    EXPECT_EQ(verify_icrc(route_of(GetParam()), other), congestion_bits) << i;
  }
}

TEST_P(RoceGolden, EncodesToTheSameBytesExceptTheMigrationState) {
  const auto bytes = from_hex(GetParam().datagram);
  Packet packet = GetParam().packet;
  packet.payload = GetParam().payload;
  std::vector<uint8_t> header(header_bytes(packet.opcode));
  encode(packet, header);
  header[1] &= 0xBF;  // rxe leaves it at "rearm"
  EXPECT_TRUE(std::equal(header.begin(), header.end(), bytes.begin()));
  EXPECT_EQ(bytes.size(),
            header.size() + packet.payload.size() + trailer_bytes(packet.payload.size()));
}

INSTANTIATE_TEST_SUITE_P(Rxe, RoceGolden, testing::ValuesIn(kGolden),
                         [](const auto& each) { return std::string(each.param.name); });

TEST(RoceIcrc, IcrcCoversTheRoute) {
  const auto bytes = from_hex("1100ffff009fe00000d8ee9c1f0000016d1cf6b3");
  Address other = kIpv4Sender;
  EXPECT_TRUE(verify_icrc({other, kIpv4Receiver, 0x70684000}, bytes));
  EXPECT_FALSE(verify_icrc({other, kIpv4Receiver, 0x70694000}, bytes));
  EXPECT_FALSE(verify_icrc({other, kIpv4Sender, 0x70684000}, bytes));
  ++other.port;
  EXPECT_FALSE(verify_icrc({other, kIpv4Receiver, 0x70684000}, bytes));
}

TEST(RoceIcrc, IcrcIsVerifiedWithoutTheIpv4Identification) {
  IdentificationEffects effects;
  for (const Golden& golden : kGolden) {
    auto bytes = from_hex(golden.datagram);
    EXPECT_TRUE(verify_icrc(route_of(golden), bytes, effects)) << golden.name;
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] ^= 0x10;
      EXPECT_EQ(verify_icrc(route_of(golden), bytes, effects), i == 4) << golden.name << " " << i;
      bytes[i] ^= 0x10;
    }
  }
}

TEST(RoceIcrc, EffectOfTheIdentificationIsAddedAfterwards) {
  for (const size_t size : {size_t{16}, size_t{20}, size_t{1044}, size_t{4128}}) {
    const std::vector<uint8_t> bytes(size - kIcrcBytes, 0x5A);
    const IdentificationEffect effect(size);
    const auto with = [&](uint16_t identification) {
      return icrc({kIpv4Sender, kIpv4Receiver, kIpv4Unidentified | uint32_t{identification} << 16},
                  bytes, {}, {});
    };
    for (const uint16_t identification : {1, 2, 63, 0x1234, 0xFFFF}) {
      EXPECT_EQ(with(0) ^ effect.of(identification), with(identification));
      EXPECT_TRUE(effect.explains(effect.of(identification)));
    }
    EXPECT_FALSE(effect.explains(1));
  }
}

TEST(RoceAtomic, RequestCarriesOperandsAndAnswerTheOriginalWord) {
  std::array<uint8_t, kBthBytes + kAtomicEthBytes + kIcrcBytes> bytes{};
  encode({.opcode = Opcode::kCompareSwap,
          .psn = 5,
          .address = 0x1122334455667788,
          .key = 0xAABBCCDD,
          .operand = 0x0102030405060708,
          .compare = 0x1112131415161718},
         bytes);
  EXPECT_EQ(bytes[0], 0x13);
  EXPECT_EQ(bytes[24], 0x01) << "the swap operand comes before the compare operand";
  EXPECT_EQ(bytes[32], 0x11);
  Packet packet;
  ASSERT_EQ(decode(bytes, packet), Decoded::kOk);
  EXPECT_EQ(packet.address, 0x1122334455667788U);
  EXPECT_EQ(packet.key, 0xAABBCCDDU);
  EXPECT_EQ(packet.operand, 0x0102030405060708U);
  EXPECT_EQ(packet.compare, 0x1112131415161718U);
  std::array<uint8_t, kBthBytes + 4 + 8 + kIcrcBytes> answer{};
  encode({.opcode = Opcode::kAtomicAck, .syndrome = kAckUnlimited, .msn = 3, .original = 77},
         answer);
  ASSERT_EQ(decode(answer, packet), Decoded::kOk);
  EXPECT_EQ(packet.original, 77U);
  EXPECT_EQ(packet.msn, 3U);
}

TEST(RoceDatagram, CarriesQueueKeyAndSourceQueuePair) {
  std::array<uint8_t, kBthBytes + 8 + 4 + kIcrcBytes> bytes{};
  encode({.opcode = Opcode::kUdSendOnlyImm,
          .solicited = true,
          .immediate = 9,
          .queue_key = 0x80010000,
          .source_qp = 0x123456},
         bytes);
  EXPECT_EQ(bytes[0], 0x65);
  EXPECT_EQ(bytes[1] & 0x80, 0x80);
  Packet packet;
  ASSERT_EQ(decode(bytes, packet), Decoded::kOk);
  EXPECT_TRUE(packet.solicited);
  EXPECT_EQ(packet.queue_key, 0x80010000U);
  EXPECT_EQ(packet.source_qp, 0x123456U);
  EXPECT_EQ(packet.immediate, 9U);
  for (const Opcode opcode : {Opcode::kUdSendOnly, Opcode::kUdSendOnlyImm}) {
    EXPECT_TRUE(shape_of(opcode).first && shape_of(opcode).last);
  }
}

TEST(RocePorts, FollowFromTheQueuePairNumber) {
  EXPECT_EQ(port_of(0x11), kUdpPort) << "queue pairs of NICs and of rdma_rxe";
  EXPECT_EQ(port_of(1U << kSlotShift), kFirstSlotPort);
  EXPECT_EQ(port_of(0xFFFFFF), port_of_slot(kSlots - 1));
  EXPECT_EQ(general_services_of(0), 1U);
  EXPECT_EQ(general_services_of(2), 2U << kSlotShift | 1);
}

TEST(RoceIcrc, TruncatedDatagramIsRefused) {
  const auto bytes = from_hex("1100ffff009fe00000d8ee9c1f0000016d1cf6b3");
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::vector<uint8_t> part(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_FALSE(verify_icrc({kIpv4Sender, kIpv4Receiver, 0x70684000}, part)) << size;
  }
}

TEST(RoceDecode, RefusesWhatTheSpecificationForbids) {
  const auto good = from_hex("0930ffff00f9ea00808e1ef8c0de10017e0000002bafde07");
  Packet packet;
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_NE(decode(std::span(good).first(size), packet), Decoded::kOk) << size;
  }
  const auto with = [&](size_t at, uint8_t value) {
    auto bytes = good;
    bytes[at] = value;
    return decode(bytes, packet);
  };
  EXPECT_EQ(with(0, 0x15), Decoded::kOpcode) << "reserved";
  EXPECT_EQ(with(0, 0x36), Decoded::kOpcode) << "a send with invalidate of UC";
  EXPECT_EQ(with(0, 0x2C), Decoded::kOpcode) << "a read of UC";
  EXPECT_EQ(with(0, 0x44), Decoded::kOpcode) << "an opcode of reliable datagrams";
  EXPECT_EQ(with(1, 0x31), Decoded::kVersion);
  EXPECT_EQ(with(3, 0xFE), Decoded::kPartition);
  EXPECT_EQ(with(2, 0x7F), Decoded::kOk) << "a limited member of the partition";
  EXPECT_EQ(with(4, 0xC0), Decoded::kOk) << "FECN and BECN";
  EXPECT_EQ(with(0, 0x0B), Decoded::kLength) << "no room for the address";
  const auto empty_last = from_hex("0900ffff00f9ea00808e1ef8c0de10012bafde07");
  EXPECT_EQ(decode(empty_last, packet), Decoded::kPayload);
  const auto padded_ack = from_hex("1110ffff009fe00000d8ee9c1f0000016d1cf6b3");
  EXPECT_EQ(decode(padded_ack, packet), Decoded::kPadding);
  const auto long_padding = from_hex("0430ffff009fe0008049308e00000000abb640d6");
  EXPECT_EQ(decode(long_padding, packet), Decoded::kOk) << "one byte and its padding";
  for (const char* empty : {"0410ffff009fe0008049308eabb640d6", "0430ffff009fe0008049308eabb640d6",
                            "0210ffff009fe0008049308eabb640d6"}) {
    EXPECT_EQ(decode(from_hex(empty), packet), Decoded::kPadding)
        << "padding without payload: " << empty;
  }
  EXPECT_EQ(decode(from_hex("0400ffff009fe0008049308e"), packet), Decoded::kLength) << "no ICRC";
  const auto long_ack = from_hex("1100ffff009fe00000d8ee9c1f000001000000006d1cf6b3");
  EXPECT_EQ(decode(long_ack, packet), Decoded::kPayload);
  auto reserved = from_hex("1100ffff009fe00000d8ee9c1f0000016d1cf6b3");
  for (const uint8_t syndrome : {0x40, 0x5F, 0x64, 0x7F, 0x80, 0xFF}) {
    reserved[12] = syndrome;
    EXPECT_EQ(decode(reserved, packet), Decoded::kSyndrome) << int{syndrome};
  }
}

TEST(RoceOpcode, OpcodeFollowsFromItsShape) {
  for (int value = 0; value <= 0xFF; ++value) {
    const auto opcode = static_cast<Opcode>(value);
    const Shape shape = shape_of(opcode);
    if (shape.kind == Kind::kSend || shape.kind == Kind::kWrite ||
        shape.kind == Kind::kReadResponse) {
      EXPECT_EQ(opcode_of(shape), opcode);
    }
  }
}

// Figure 38 and table 38 of the specification: operation, place in the message, immediate.
TEST(RoceOpcode, ShapeIsThatOfTheSpecification) {
  const auto is = [](Opcode opcode, Kind kind, bool first, bool last, bool immediate) {
    const Shape shape = shape_of(opcode);
    EXPECT_EQ(shape.kind, kind) << static_cast<int>(opcode);
    EXPECT_EQ(shape.first, first) << static_cast<int>(opcode);
    EXPECT_EQ(shape.last, last) << static_cast<int>(opcode);
    EXPECT_EQ(shape.immediate, immediate) << static_cast<int>(opcode);
  };
  is(Opcode::kSendFirst, Kind::kSend, true, false, false);
  is(Opcode::kSendMiddle, Kind::kSend, false, false, false);
  is(Opcode::kSendLast, Kind::kSend, false, true, false);
  is(Opcode::kSendLastImm, Kind::kSend, false, true, true);
  is(Opcode::kSendOnly, Kind::kSend, true, true, false);
  is(Opcode::kSendOnlyImm, Kind::kSend, true, true, true);
  is(Opcode::kSendLastInvalidate, Kind::kSend, false, true, false);
  is(Opcode::kSendOnlyInvalidate, Kind::kSend, true, true, false);
  is(Opcode::kWriteFirst, Kind::kWrite, true, false, false);
  is(Opcode::kWriteMiddle, Kind::kWrite, false, false, false);
  is(Opcode::kWriteLast, Kind::kWrite, false, true, false);
  is(Opcode::kWriteLastImm, Kind::kWrite, false, true, true);
  is(Opcode::kWriteOnly, Kind::kWrite, true, true, false);
  is(Opcode::kWriteOnlyImm, Kind::kWrite, true, true, true);
  is(Opcode::kReadRequest, Kind::kReadRequest, true, true, false);
  is(Opcode::kReadFirst, Kind::kReadResponse, true, false, false);
  is(Opcode::kReadMiddle, Kind::kReadResponse, false, false, false);
  is(Opcode::kReadLast, Kind::kReadResponse, false, true, false);
  is(Opcode::kReadOnly, Kind::kReadResponse, true, true, false);
  is(Opcode::kAck, Kind::kAck, true, true, false);
  is(Opcode::kCnp, Kind::kCnp, true, true, false);
}

TEST(RoceSyndrome, EveryValueIsClassified) {
  for (int value = 0; value <= 0xFF; ++value) {
    Syndrome expected = Syndrome::kReserved;
    if (value <= 0x1F) expected = Syndrome::kAck;
    if (value >= 0x20 && value <= 0x3F) expected = Syndrome::kReceiverNotReady;
    if (value >= 0x60 && value <= 0x63) expected = Syndrome::kNak;
    EXPECT_EQ(classify(static_cast<uint8_t>(value)), expected) << value;
  }
}

// Table 45 of the specification, at some of its entries.
TEST(RoceRnr, DelaysAreThoseOfTheSpecification) {
  EXPECT_EQ(rnr_delay(0x20), Duration::from_us(655'350));
  EXPECT_EQ(rnr_delay(0x21), Duration::from_us(10));
  EXPECT_EQ(rnr_delay(0x20 | 14), Duration::from_us(1280));
  EXPECT_EQ(rnr_delay(0x3F), Duration::from_us(491'520));
  EXPECT_EQ(rnr_delay(receiver_not_ready(kUsualRnrDelay)), Duration::from_us(320));
  EXPECT_EQ(receiver_not_ready(31), 0x3F);
}

TEST(RoceCnp, NamesTheQueuePairAndClearsReservedBytes) {
  std::array<uint8_t, kBthBytes + kCnpReservedBytes + kIcrcBytes> bytes{};
  bytes.fill(0xEE);
  encode({.opcode = Opcode::kCnp, .destination_qp = 0x123456}, bytes);
  EXPECT_TRUE(std::all_of(bytes.begin() + kBthBytes, bytes.end() - kIcrcBytes,
                          [](uint8_t byte) { return byte == 0; }));
  EXPECT_EQ(bytes[0], 0x81);
  EXPECT_EQ(bytes[4], 0x40) << "BECN";
  Packet packet;
  ASSERT_EQ(decode(bytes, packet), Decoded::kOk);
  EXPECT_EQ(packet.destination_qp, 0x123456U);
}

}  // namespace
}  // namespace pacecar::roce::roce_test
