// What a receiver looks at before, or instead of, decoding a whole header.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "transport/wire/checksum.h"
#include "transport/wire/extended.h"

namespace pacecar::wire::alike_test {
namespace {

using Packet = std::vector<uint8_t>;
using Header = std::array<uint8_t, kDataHeaderBytes>;

constexpr size_t kReservedAt = 8;  // of the word with the PSN

const DataHeader kWrite{.opcode = Opcode::kWriteWithImm,
                        .destination_qp = 0x123456,
                        .psn = 0xABCDEF,
                        .address = 0x0102030405060708,
                        .key = 0x11121314,
                        .length = 100,
                        .immediate = 0x21222324,
                        .msn = 0x313233,
                        .timestamp = 0x41424344};

Header encoded(const DataHeader& header) {
  Header bytes;
  encode(header, bytes);
  return bytes;
}

Packet with_payload(const Header& header, size_t payload) {
  Packet packet(header.begin(), header.end());
  packet.resize(header.size() + payload, 'x');
  return packet;
}

TEST(WireAlike, DecodesWhatIsOfTheSameWrite) {
  DataHeader next = kWrite;
  next.psn = 0xABCDF0;
  next.address += 40;
  next.timestamp += 7;
  next.ack_request = true;
  const Header like = encoded(kWrite);
  DataHeader header = kWrite;
  std::span<const uint8_t> payload;
  const Packet packet = with_payload(encoded(next), 60);
  ASSERT_TRUE(decode_alike(packet, like, header, payload));
  EXPECT_EQ(header, next);
  EXPECT_EQ(payload.data(), packet.data() + kDataHeaderBytes);
  EXPECT_EQ(payload.size(), 60U);
}

TEST(WireAlike, RefusesEveryOtherWrite) {
  const Header like = encoded(kWrite);
  const Packet packet = with_payload(like, 10);
  for (size_t at = 0; at < kDataHeaderBytes; ++at) {
    Packet other = packet;
    other[at] ^= 1;
    DataHeader header = kWrite;
    std::span<const uint8_t> payload;
    const bool may_differ = (at >= 9 && at < 20) || at >= 36;  // PSN, address, time stamp
    EXPECT_EQ(decode_alike(other, like, header, payload), may_differ) << at;
    EXPECT_TRUE(may_differ || header == kWrite) << at;
  }
  for (size_t size = 0; size < kDataHeaderBytes; ++size) {
    EXPECT_FALSE(same_write(std::span(packet).first(size), like)) << size;
  }
  EXPECT_TRUE(same_write(std::span(packet).first(kDataHeaderBytes), like));
}

TEST(WireAlike, HoldsPayloadToTheWritesLength) {
  const Header like = encoded(kWrite);
  std::span<const uint8_t> payload;
  for (const size_t size : {size_t{0}, size_t{kWrite.length}, size_t{kWrite.length} + 1}) {
    DataHeader header = kWrite;
    EXPECT_EQ(decode_alike(with_payload(like, size), like, header, payload), size <= kWrite.length);
  }
  DataHeader back = kWrite;
  back.taken_back = true;
  const Header taken_back = encoded(back);
  DataHeader header = back;
  EXPECT_TRUE(decode_alike(with_payload(taken_back, 0), taken_back, header, payload));
  EXPECT_FALSE(decode_alike(with_payload(taken_back, 1), taken_back, header, payload));
}

TEST(WireAlike, HoldsThePacketToTheLargestDatagram) {
  DataHeader large = kWrite;
  large.length = 1 << 20;
  const Header like = encoded(large);
  std::span<const uint8_t> payload;
  DataHeader header = large;
  const size_t most = kMaxDatagramBytes - kDataHeaderBytes;
  EXPECT_TRUE(decode_alike(with_payload(like, most), like, header, payload));
  EXPECT_FALSE(decode_alike(with_payload(like, most + 1), like, header, payload));
}

TEST(WireJoined, AFlagInTheHeaderTells) {
  DataHeader header = kWrite;
  EXPECT_TRUE(stands_alone(encoded(header)));
  header.joined = true;
  const Header joined = encoded(header);
  EXPECT_FALSE(stands_alone(joined));
  EXPECT_TRUE(stands_alone(std::span(joined).first(kFlagsAt)));
  EXPECT_FALSE(stands_alone(std::span(joined).first(kFlagsAt + 1)));
}

// A data packet without payload, `others` bytes of further packets, and `told` as their length.
Packet joined_datagram(size_t others, size_t told) {
  DataHeader header = kWrite;
  header.joined = true;
  Packet datagram = with_payload(encoded(header), kChecksumBytes + others);
  datagram.push_back(static_cast<uint8_t>(told >> 8));
  datagram.push_back(static_cast<uint8_t>(told));
  return datagram;
}

TEST(WireJoined, TakesTheDataPacketOff) {
  for (const size_t others : {0, 1, 300}) {
    const Packet datagram = joined_datagram(others, others);
    std::span<const uint8_t> rest = datagram;
    const auto first = take_first(rest, PacketKind::kData, kChecksumBytes);
    EXPECT_EQ(first.data(), datagram.data());
    EXPECT_EQ(first.size(), kDataHeaderBytes + kChecksumBytes);
    EXPECT_EQ(rest.size(), others);
    EXPECT_EQ(rest.data(), datagram.data() + first.size());
  }
}

TEST(WireJoined, WhatTellsOfMoreThanThereIsStaysWhole) {
  const Packet datagram = joined_datagram(10, 11);
  std::span<const uint8_t> rest = datagram;
  EXPECT_EQ(take_first(rest, PacketKind::kData, kChecksumBytes).size(), datagram.size());
  EXPECT_TRUE(rest.empty());
}

TEST(WireJoined, WhatIsTooShortToHoldOthersStaysWhole) {
  const Packet datagram = joined_datagram(0, 0);
  const size_t shorter = datagram.size() - 1;
  std::span<const uint8_t> rest = std::span(datagram).first(shorter);
  EXPECT_EQ(take_first(rest, PacketKind::kData, kChecksumBytes).size(), shorter);
  EXPECT_TRUE(rest.empty());
}

TEST(WireJoined, AcknowledgementsTellTheirOwnLength) {
  Packet datagram(ack_bytes(0) + 20);
  encode(AckHeader{}, {}, {}, datagram);
  std::span<const uint8_t> rest = datagram;
  EXPECT_EQ(take_first(rest, PacketKind::kAck, kChecksumBytes).size(),
            ack_bytes(0) + kChecksumBytes);
  EXPECT_EQ(rest.size(), 20 - kChecksumBytes);
  rest = std::span(datagram).first(ack_bytes(0));  // cut off
  EXPECT_EQ(take_first(rest, PacketKind::kAck, 0).size(), ack_bytes(0));
  EXPECT_TRUE(rest.empty());
}

// The checksum bit by bit, from its polynomial.
uint32_t reference_crc32c(std::span<const uint8_t> bytes) {
  uint32_t crc = ~0U;
  for (const uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78 : 0);
  }
  return ~crc;
}

TEST(WireChecksum, IsTheSameForHeadersOfEveryLength) {
  Packet bytes(300);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * i + 7);
  for (size_t size = 0; size <= bytes.size(); ++size) {
    const auto header = std::span(bytes).first(size);
    EXPECT_EQ(checksum(header, {}, Coverage::kHeader), reference_crc32c(header)) << size;
  }
}

}  // namespace
}  // namespace pacecar::wire::alike_test
