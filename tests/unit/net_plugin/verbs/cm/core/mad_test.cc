// The messages of connection management, byte for byte (InfiniBand Architecture Specification
// vol. 1, 12.6 and 13.4.2, and annex A11).
#include "net_plugin/verbs/cm/core/mad.h"

#include <gtest/gtest.h>

#include <numeric>

namespace pacecar::ibverbs::cm::mad_test {
namespace {

Message request() {
  Message message{.kind = Kind::kRequest,
                  .transaction = 0x0102'0304'0506'0708,
                  .local_id = 0x1122'3344,
                  .service = service_of(0x0106, 7174),
                  .guid = 0x0200'00FF'FE00'0001,
                  .queue_pair = 0xABCDEF,
                  .psn = 0x654321,
                  .responder_resources = 16,
                  .initiator_depth = 8,
                  .retries = 7,
                  .not_ready_retries = 6,
                  .mtu = 5,
                  .ack_timeout = 18,
                  .flow_control = true,
                  .shared_receives = true};
  std::iota(message.local_gid.begin(), message.local_gid.end(), uint8_t{1});
  std::iota(message.remote_gid.begin(), message.remote_gid.end(), uint8_t{101});
  std::iota(message.private_data.begin(), message.private_data.begin() + 92, uint8_t{7});
  return message;
}

uint32_t be(const Mad& mad, size_t at, size_t bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value = value << 8 | mad[at + i];
  return value;
}

TEST(CmMad, RequestHasTheLayoutOfTheSpecification) {
  const Mad mad = encode(request());
  EXPECT_EQ(be(mad, 0, 4), 0x0107'0203U);  // version 1, communication management, 2, Send
  EXPECT_EQ(be(mad, 8, 4), 0x0102'0304U);
  EXPECT_EQ(be(mad, 16, 2), 0x0010U);
  constexpr size_t kBody = 24;
  EXPECT_EQ(be(mad, kBody, 4), 0x1122'3344U);
  EXPECT_EQ(be(mad, kBody + 8, 4), 0U);
  EXPECT_EQ(be(mad, kBody + 12, 4), 0x0106'1C06U);
  EXPECT_EQ(be(mad, kBody + 32, 4), 0xABCD'EF10U);  // queue pair, responder resources
  EXPECT_EQ(mad[kBody + 39], 8);
  EXPECT_EQ(mad[kBody + 43] & 7, 1);  // reliable connection, flow control
  EXPECT_EQ(be(mad, kBody + 44, 3), 0x65'4321U);
  EXPECT_EQ(mad[kBody + 47] & 7, 7);
  EXPECT_EQ(be(mad, kBody + 48, 2), 0xFFFFU);
  EXPECT_EQ(mad[kBody + 50], 5 << 4 | 6);
  EXPECT_EQ(mad[kBody + 51] & 0xF, 8);
  EXPECT_EQ(mad[kBody + 56], 1);
  EXPECT_EQ(mad[kBody + 72], 101);
  EXPECT_EQ(mad[kBody + 95], 18 << 3);
  EXPECT_EQ(mad[kBody + 140], 7);
  EXPECT_EQ(mad[255], 7 + 91);
}

TEST(CmMad, EveryMessageIsDecodedAsEncoded) {
  for (uint16_t attribute = 0x10; attribute <= 0x18; ++attribute) {
    Message message = request();
    message.kind = static_cast<Kind>(attribute);
    message.remote_id = 0x5566'7788;
    message.reason = 28;
    message.status = 2;
    message.wait = 19;
    message.queue_key = 0x0123'4567;
    const Mad once = encode(message);
    const auto read = decode(once);
    ASSERT_TRUE(read) << attribute;
    EXPECT_EQ(read->kind, message.kind);
    EXPECT_EQ(read->local_id, message.local_id);
    EXPECT_EQ(encode(*read), once) << attribute;
  }
}

TEST(CmMad, InvalidMadsAreRefused) {
  const Mad good = encode(request());
  EXPECT_FALSE(decode(std::span(good).first(255)));
  EXPECT_FALSE(decode({}));
  for (const size_t at : {size_t{0}, size_t{1}, size_t{2}, size_t{3}, size_t{16}}) {
    Mad wrong = good;
    wrong[at] ^= 0x40;
    EXPECT_FALSE(decode(wrong)) << at;
  }
  Mad unreliable = good;
  unreliable[24 + 43] |= 2 << 1;
  EXPECT_FALSE(decode(unreliable));
}

TEST(CmMad, IpHeaderCarriesBothAddresses) {
  std::array<uint8_t, IpHeader::kBytes> bytes{};
  IpHeader header{.ipv4 = true, .port = 0x1234};
  header.source[15] = 1;
  header.destination[15] = 2;
  encode(header, bytes);
  EXPECT_EQ(bytes[1], 0x40);
  EXPECT_EQ(bytes[2], 0x12);
  EXPECT_EQ(bytes[19], 1);
  EXPECT_EQ(bytes[35], 2);
  const auto read = decode_ip(bytes);
  ASSERT_TRUE(read);
  EXPECT_TRUE(read->ipv4);
  EXPECT_EQ(read->port, 0x1234);
  EXPECT_EQ(read->source, header.source);
  bytes[1] = 0x50;
  EXPECT_FALSE(decode_ip(bytes));
  bytes[1] = 0x40;
  bytes[0] = 1;
  EXPECT_FALSE(decode_ip(bytes));
}

}  // namespace
}  // namespace pacecar::ibverbs::cm::mad_test
