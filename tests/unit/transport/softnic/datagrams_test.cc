// Datagrams of UD alone: the header before each arrival, the packets sent, and the completions.
#include "transport/softnic/datagram/datagrams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/rc_halves.h"
#include "tests/support/soft_nic_pair.h"

namespace pacecar::datagrams_test {
namespace {

using test::HalfMemory;
using test::test_address;

constexpr size_t kGrh = roce::kGrhBytes;
constexpr size_t kUdpBytes = 8;

// RFC 1071: the sum over a header, its checksum included.
uint32_t sum_of_words(std::span<const uint8_t> header) {
  uint64_t sum = 0;
  for (size_t i = 0; i < header.size(); i += 2) sum += uint64_t{header[i]} << 8 | header[i + 1];
  return static_cast<uint32_t>(sum % 0xFFFF);
}

// What lies in memory after a datagram of `size` bytes has arrived.
std::vector<uint8_t> placed(const Address& source, const Address& destination, size_t size) {
  HalfMemory memory;
  std::vector<uint8_t> bytes(kGrh + size, 0xEE);
  const auto region = memory.add(bytes, Access::kLocalWrite);
  const std::vector<uint8_t> payload(size, 0x77);
  roce::Packet packet{.opcode = roce::Opcode::kUdSendOnly};
  packet.payload = payload;
  EXPECT_TRUE(Datagrams::place(
      source, destination, packet,
      {.local = bytes.data(), .length = bytes.size(), .local_key = region.key}, memory.table()));
  return bytes;
}

size_t udp_bytes(size_t payload) {
  return kUdpBytes + roce::header_bytes(roce::Opcode::kUdSendOnly) + payload +
         roce::trailer_bytes(payload);
}

// RFC 791, at the end of the 40 bytes (annex A17).
TEST(SoftNicUd, TheHeaderOfAnIpv4DatagramIsItsIpHeader) {
  for (const size_t size : {0, 1, 100, 1000}) {
    for (uint8_t host = 1; host < 60; ++host) {
      Address source = test_address(host);
      source.ip[12] = static_cast<uint8_t>(host * 4);  // sums with and without a carry
      const Address destination = test_address(2);
      const auto bytes = placed(source, destination, size);
      EXPECT_THAT(std::vector(bytes.begin(), bytes.begin() + 20), testing::Each(0));
      const auto header = std::span(bytes).subspan(20, 20);
      const size_t length = 20 + udp_bytes(size);
      EXPECT_EQ(header[0], 0x45);
      EXPECT_EQ(header[1], 0);
      EXPECT_EQ(header[2] << 8 | header[3], static_cast<int>(length));
      EXPECT_THAT(std::vector(header.begin() + 4, header.begin() + 8),
                  testing::ElementsAre(0, 0, 0x40, 0))
          << "not fragmented";
      EXPECT_EQ(header[8], 64);
      EXPECT_EQ(header[9], 17) << "UDP";
      EXPECT_EQ(sum_of_words(header), 0U);
      EXPECT_TRUE(std::equal(&header[12], &header[12] + 4, &source.ip[12]));
      EXPECT_TRUE(std::equal(&header[16], &header[16] + 4, &destination.ip[12]));
      EXPECT_EQ(std::count(bytes.begin() + kGrh, bytes.end(), 0x77), static_cast<long>(size));
    }
  }
}

// RFC 8200.
TEST(SoftNicUd, TheHeaderOfAnIpv6DatagramIsItsIpHeader) {
  Address source{.ip = {0x20, 0x01, 0x0D, 0xB8}};
  Address destination = source;
  source.ip[15] = 1;
  destination.ip[15] = 2;
  const auto bytes = placed(source, destination, 1000);
  EXPECT_THAT(std::vector(bytes.begin(), bytes.begin() + 4), testing::ElementsAre(0x60, 0, 0, 0));
  EXPECT_EQ(bytes[4] << 8 | bytes[5], static_cast<int>(udp_bytes(1000)));
  EXPECT_EQ(bytes[6], 17) << "UDP";
  EXPECT_EQ(bytes[7], 64);
  EXPECT_TRUE(std::equal(source.ip.begin(), source.ip.end(), &bytes[8]));
  EXPECT_TRUE(std::equal(destination.ip.begin(), destination.ip.end(), &bytes[24]));
}

TEST(SoftNicUd, ADatagramNeedsRoomAndTheRightToWrite) {
  HalfMemory memory;
  std::vector<uint8_t> bytes(kGrh + 10, 0xEE);
  const auto region = memory.add(bytes, Access::kLocalWrite);
  const auto read_only = memory.add(bytes, Access::kLocalRead);
  const std::vector<uint8_t> payload(10);
  roce::Packet packet{.opcode = roce::Opcode::kUdSendOnly};
  packet.payload = payload;
  const auto fits = [&](Bytes length, uint32_t key) {
    return Datagrams::place(test_address(1), test_address(2), packet,
                            {.local = bytes.data(), .length = length, .local_key = key},
                            memory.table());
  };
  EXPECT_FALSE(fits(kGrh + 9, region.key));
  EXPECT_FALSE(fits(kGrh + 10, read_only.key));
  EXPECT_EQ(bytes[0], 0xEE);
  EXPECT_TRUE(fits(kGrh + 10, region.key));
}

class SoftNicUdSending : public testing::Test {
 protected:
  static constexpr uint32_t kLastPsn = 0xFFFFFF;

  size_t post(Bytes length, uint64_t id, Opcode opcode = Opcode::kSend) {
    const Datagram datagram{.send = {.id = id,
                                     .local = bytes_.data(),
                                     .length = length,
                                     .local_key = region_.key,
                                     .immediate = 0xABC,
                                     .opcode = opcode,
                                     .solicited = true},
                            .gid = test_address(3).ip,
                            .queue_pair = 5U << roce::kSlotShift | 7,
                            .queue_key = 0x1111};
    return datagrams_.post({&datagram, 1});
  }
  std::vector<roce::Packet> sent() {
    std::vector<roce::Packet> packets;
    Datagrams::Outgoing next;
    while (datagrams_.next_packet(memory_.table(), &next)) {
      packets.push_back(next.packet);
      destination_ = *next.destination;
    }
    return packets;
  }
  std::vector<std::pair<uint64_t, CompletionStatus>> done() {
    std::vector<std::pair<uint64_t, CompletionStatus>> all;
    WorkRequest send;
    CompletionStatus status{};
    while (datagrams_.pop_done(&send, &status)) all.emplace_back(send.id, status);
    return all;
  }

  HalfMemory memory_;
  std::vector<uint8_t> bytes_ = std::vector<uint8_t>(100);
  MemoryRegion region_ = memory_.add(bytes_, Access::kLocalRead);
  Datagrams datagrams_{{.queue_pair = 0x77,
                        .queue_key = 0x2222,
                        .first_psn = kLastPsn,
                        .work_requests = 4,
                        .scope_id = 6,
                        .ports_by_number = true}};
  Address destination_;
};

TEST_F(SoftNicUdSending, PacketsNameBothEndsAndCountUp) {
  post(10, 1);
  post(0, 2, Opcode::kSendWithImm);
  const auto packets = sent();
  ASSERT_EQ(packets.size(), 2U);
  EXPECT_EQ(packets[0].opcode, roce::Opcode::kUdSendOnly);
  EXPECT_EQ(packets[0].immediate, 0U);
  EXPECT_EQ(packets[1].opcode, roce::Opcode::kUdSendOnlyImm);
  EXPECT_EQ(packets[1].immediate, 0xABCU);
  EXPECT_EQ(packets[0].psn, kLastPsn);
  EXPECT_EQ(packets[1].psn, 0U);
  for (const roce::Packet& packet : packets) {
    EXPECT_EQ(packet.destination_qp, 5U << roce::kSlotShift | 7);
    EXPECT_EQ(packet.source_qp, 0x77U);
    EXPECT_EQ(packet.queue_key, 0x1111U);
    EXPECT_TRUE(packet.solicited);
  }
  EXPECT_EQ(packets[0].payload.data(), bytes_.data());
  EXPECT_EQ(packets[0].payload.size(), 10U);
  EXPECT_EQ(destination_.ip, test_address(3).ip);
  EXPECT_EQ(destination_.scope_id, 6U);
  EXPECT_EQ(destination_.port, roce::port_of_slot(5));
}

TEST_F(SoftNicUdSending, ASendIsDoneWhenThePacketIoHasIt) {
  post(10, 1);
  EXPECT_EQ(sent().size(), 1U);
  EXPECT_TRUE(done().empty());
  datagrams_.on_handed_over();
  post(10, 2);
  EXPECT_EQ(sent().size(), 1U);
  EXPECT_THAT(done(), testing::ElementsAre(testing::Pair(1, CompletionStatus::kOk)));
  EXPECT_FALSE(datagrams_.idle());
  datagrams_.on_handed_over();
  EXPECT_THAT(done(), testing::ElementsAre(testing::Pair(2, CompletionStatus::kOk)));
  EXPECT_TRUE(datagrams_.idle());
  EXPECT_TRUE(sent().empty());
}

TEST_F(SoftNicUdSending, MemoryThatIsGoneFailsItsSendsAlone) {
  post(1, 1);
  post(0, 2);
  memory_.table().remove(region_.key);
  EXPECT_EQ(sent().size(), 1U) << "what is empty reads nothing";
  datagrams_.on_handed_over();
  EXPECT_THAT(done(), testing::ElementsAre(testing::Pair(1, CompletionStatus::kMemoryGone),
                                           testing::Pair(2, CompletionStatus::kOk)));
}

TEST_F(SoftNicUdSending, TakesAsManyAsTheQueueHolds) {
  for (uint64_t id = 0; id < 4; ++id) EXPECT_EQ(post(1, id), 1U);
  EXPECT_EQ(post(1, 4), 0U);
}

}  // namespace
}  // namespace pacecar::datagrams_test
