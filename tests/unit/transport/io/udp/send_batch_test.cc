// How the UDP packet I/O groups packets for one system call.
#include "transport/io/udp/send_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/udp.h>

#include <cstring>

#include "transport/base/prng.h"
#include "transport/io/udp/parse_address.h"
#include "transport/wire/address.h"
#include "transport/wire/icrc.h"
#include "transport/wire/roce.h"

namespace pacecar::send_batch_test {
namespace {

const Address kPeerA = *parse_address("192.0.2.1:18515");
const Address kPeerB = *parse_address("192.0.2.2:18515");

// Packets of payload only, all at the start of one buffer, so that none is adjacent to the next.
std::vector<TxPacket> packets_of(const std::vector<size_t>& sizes) {
  static const std::vector<uint8_t> memory(65536);
  std::vector<TxPacket> packets(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    packets[i].payload = std::span(memory).first(sizes[i]);
    packets[i].destination = &kPeerA;
  }
  return packets;
}

std::vector<size_t> plan(SendBatch& batch, std::span<const TxPacket> packets, bool segment = true) {
  batch.plan(packets, segment);
  std::vector<size_t> groups;
  for (size_t i = 0; i < batch.messages().size(); ++i) groups.push_back(batch.packets_in(i));
  return groups;
}

// The UDP_SEGMENT size of a message; 0 if it has none.
size_t segment_of(mmsghdr& message) {
  if (message.msg_hdr.msg_controllen == 0) return 0;
  uint16_t size = 0;
  std::memcpy(&size, CMSG_DATA(CMSG_FIRSTHDR(&message.msg_hdr)), sizeof(size));
  return size;
}

TEST(SendBatch, OnlyTheLastPacketOfAGroupIsShorter) {
  SendBatch batch(9000, true);
  EXPECT_EQ(plan(batch, packets_of({100, 100, 40, 100, 200, 200, 200})),
            (std::vector<size_t>{3, 1, 3}));
  EXPECT_EQ(segment_of(batch.messages()[0]), 100U);
  EXPECT_EQ(segment_of(batch.messages()[1]), 0U);
  EXPECT_EQ(segment_of(batch.messages()[2]), 200U);
}

TEST(SendBatch, GroupsAreBoundedInSegmentsAndBytes) {
  SendBatch batch(9000, true);
  EXPECT_EQ(plan(batch, packets_of(std::vector<size_t>(70, 50))), (std::vector<size_t>{64, 6}));
  EXPECT_EQ(plan(batch, packets_of(std::vector<size_t>(10, 8236))), (std::vector<size_t>{7, 3}));
}

TEST(SendBatch, WithoutSegmentationEveryPacketIsAMessage) {
  SendBatch batch(9000, true);
  EXPECT_EQ(plan(batch, packets_of({100, 100, 100}), false), (std::vector<size_t>{1, 1, 1}));
  EXPECT_EQ(segment_of(batch.messages()[0]), 0U);
}

TEST(SendBatch, EachDestinationIsAGroupAndEachSocketABatch) {
  SendBatch batch(9000, true);
  auto packets = packets_of(std::vector<size_t>(8, 100));
  packets[2].destination = packets[3].destination = &kPeerB;
  packets[5].path = 1;
  EXPECT_EQ(plan(batch, packets), (std::vector<size_t>{2, 2, 1}));
  packets[4].traffic_class = TrafficClass::kControl;
  EXPECT_EQ(plan(batch, packets), (std::vector<size_t>{2, 2}));
}

TEST(SendBatch, ControlPacketsOfAllPathsUseOneSocket) {
  SendBatch batch(9000, true);
  auto packets = packets_of(std::vector<size_t>(3, 100));
  for (TxPacket& packet : packets) packet.traffic_class = TrafficClass::kControl;
  packets[1].path = 1;
  packets[2].destination = &kPeerB;
  EXPECT_EQ(plan(batch, packets), (std::vector<size_t>{2, 1}));
}

// The kernel numbers the datagrams of a group in their IPv4 identification: 0, 1, 2, ...
TEST(SendBatch, EachDatagramOfAGroupHasTheIcrcOfItsIpIdentification) {
  SendBatch batch(9000, true, true);
  const Address source = *parse_address("192.0.2.9:49152");
  std::vector<std::vector<uint8_t>> bytes;
  for (const size_t size : {256, 256, 100}) {
    auto& packet = bytes.emplace_back(size, static_cast<uint8_t>(bytes.size() + 1));
    const uint32_t icrc = roce::icrc({source, kPeerA, kIpv4Unidentified},
                                     std::span(packet).first(size - roce::kIcrcBytes), {}, {});
    std::memcpy(&packet[size - roce::kIcrcBytes], &icrc, sizeof icrc);
  }
  std::vector<TxPacket> packets;
  for (const auto& packet : bytes) {
    packets.push_back({.header = std::span(packet).first(12),
                       .payload = std::span(packet).subspan(12, packet.size() - 16),
                       .trailer = std::span(packet).last(4),
                       .destination = &kPeerA});
  }
  ASSERT_EQ(plan(batch, packets), (std::vector<size_t>{3}));
  std::vector<uint8_t> sent;
  const msghdr& message = batch.messages()[0].msg_hdr;
  for (const iovec& part : std::span(message.msg_iov, message.msg_iovlen)) {
    const auto* const begin = static_cast<const uint8_t*>(part.iov_base);
    sent.insert(sent.end(), begin, begin + part.iov_len);
  }
  std::span<const uint8_t> rest = sent;
  for (uint32_t place = 0; place < bytes.size(); ++place) {
    const auto datagram = rest.first(bytes[place].size());
    const uint32_t fragment = place << 16 | kIpv4Unidentified;
    EXPECT_TRUE(roce::verify_icrc({source, kPeerA, fragment}, datagram)) << place;
    rest = rest.subspan(datagram.size());
  }
}

TEST(SendBatch, EqualAddressesInDifferentMemoryAreOneDestination) {
  SendBatch batch(9000, true);
  auto packets = packets_of({100, 100});
  const Address copy = kPeerA;
  packets[1].destination = &copy;
  EXPECT_EQ(plan(batch, packets), (std::vector<size_t>{2}));
}

TEST(SendBatch, AdjacentMemorySharesAnIovec) {
  SendBatch batch(9000, true);
  const std::vector<uint8_t> slab(88), payloads(200);
  std::vector<TxPacket> packets(2);
  for (size_t i = 0; i < 2; ++i) {
    packets[i].header = std::span(slab).subspan(i * 44, 40);
    packets[i].payload = std::span(payloads).subspan(i * 100, 100);
    packets[i].trailer = std::span(slab).subspan(i * 44 + 40, 4);
    packets[i].destination = &kPeerA;
  }
  batch.plan(packets, true);
  // header, payload, trailer + header, payload, trailer
  EXPECT_EQ(batch.messages()[0].msg_hdr.msg_iovlen, 5U);
  EXPECT_EQ(batch.messages()[0].msg_hdr.msg_iov[2].iov_len, 44U);
}

TEST(SendBatch, SingleShortDatagramIsOnePiece) {
  SendBatch batch(9000, true);
  const std::vector<uint8_t> header{1, 2, 3}, payload{4, 5}, trailer{6};
  TxPacket packet;
  packet.header = header;
  packet.payload = payload;
  packet.trailer = trailer;
  packet.destination = &kPeerA;
  batch.plan(std::span(&packet, 1), true);
  EXPECT_THAT(batch.short_message(), testing::ElementsAre(1, 2, 3, 4, 5, 6));
  for (const std::vector<size_t>& sizes : {std::vector<size_t>{513}, {100, 100}, {100, 200}}) {
    batch.plan(packets_of(sizes), true);
    EXPECT_TRUE(batch.short_message().empty())
        << "a long packet, joined packets, or several messages: " << sizes.size();
  }
}

TEST(SendBatch, RefusesPacketsThatItsSocketsCannotSend) {
  SendBatch batch(1000, true);
  auto packets = packets_of({100, 1001, 100});
  EXPECT_EQ(batch.plan(packets, true), 1U);  // stops before the packet that is too long
  EXPECT_EQ(batch.plan(std::span(packets).subspan(1), true), 0U);
  const Address ipv6 = *parse_address("[2001:db8::1]:1");
  const Address no_port = *parse_address("192.0.2.1:0");
  for (const Address& address : {ipv6, no_port}) {
    packets[0].destination = &address;
    EXPECT_EQ(batch.plan(packets, true), 0U);
  }
  EXPECT_EQ(batch.plan(packets_of({0}), true), 0U);
}

TEST(SendBatch, PlansOfManyPacketsStayWithinTheArrays) {
  SendBatch batch(9000, true);
  const std::vector<uint8_t> memory(16);
  std::vector<TxPacket> packets(5000);
  for (TxPacket& packet : packets) {  // three entries each, none adjacent
    packet.header = std::span(memory).first(2);
    packet.payload = std::span(memory).subspan(4, 2);
    packet.trailer = std::span(memory).subspan(8, 2);
    packet.destination = &kPeerA;
  }
  const size_t planned = batch.plan(packets, true);
  EXPECT_EQ(planned, SendBatch::kMaxIovecs / 3);
  size_t entries = 0;
  for (const mmsghdr& message : batch.messages()) entries += message.msg_hdr.msg_iovlen;
  EXPECT_EQ(entries, planned * 3);
}

}  // namespace
}  // namespace pacecar::send_batch_test
