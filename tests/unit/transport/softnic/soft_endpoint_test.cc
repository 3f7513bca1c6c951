// Addresses of queue pairs of software NICs: their content survives, and nothing else is taken.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/soft_nic_pair.h"
#include "transport/nic/rc_endpoint.h"
#include "transport/softnic/endpoint.h"
#include "transport/wire/big_endian.h"
#include "transport/wire/extended.h"

namespace pacecar::soft_endpoint_test {
namespace {

using test::SoftNicPair;

SoftEndpoint endpoint(SoftNicPair& pair, size_t side, QueuePairId id) {
  return *decode_endpoint(pair.nic(side).queue_pair_address(id).view()).value().extended;
}

TEST(SoftEndpoint, SurvivesItsEncoding) {
  SoftNicPair pair;
  const auto id = pair.nic(0).create_queue_pair({.work_requests = 17}).value();
  const SoftEndpoint end = endpoint(pair, 0, id);
  EXPECT_EQ(end.address, test::test_address(1));
  EXPECT_EQ(end.queue_pair, id);
  EXPECT_EQ(end.window_packets, 128U);
  EXPECT_EQ(end.writes, 17U);
  EXPECT_EQ(end.mtu, SoftNicPair::default_config().mtu);
  EXPECT_TRUE(end.full_checksum);
}

TEST(SoftEndpoint, FurtherEndsSurviveTheirEncodingAndCountToTheLastByte) {
  for (const Security security : {Security::kOff, Security::kAuth}) {
    SoftNicConfig config = SoftNicPair::default_config();
    config.security = security;
    SoftNicPair pair(config);
    const SoftEndpoint first = endpoint(pair, 0, pair.nic(0).create_queue_pair({}).value());
    std::vector<SoftEndpoint> further(RcEndpoint::kMaxLanes - 1, first);
    for (size_t i = 0; i < further.size(); ++i) {
      further[i].address.port = static_cast<uint16_t>(5000 + i);
      further[i].queue_pair += 1 + static_cast<uint32_t>(i);
      further[i].first_psn ^= 1 + static_cast<uint32_t>(i);
      if (security != Security::kOff) further[i].salt += 1 + i;
    }
    const QueuePairAddress address = encode(first, true, {}, further);
    const auto decoded = decode_endpoint(address.view());
    ASSERT_TRUE(decoded) << decoded.error().message;
    EXPECT_EQ(decoded->extended->queue_pair, first.queue_pair);
    ASSERT_EQ(decoded->further.size(), further.size());
    for (size_t i = 0; i < further.size(); ++i) {
      EXPECT_EQ(decoded->further[i].address, further[i].address);
      EXPECT_EQ(decoded->further[i].queue_pair, further[i].queue_pair);
      EXPECT_EQ(decoded->further[i].first_psn, further[i].first_psn);
      EXPECT_EQ(decoded->further[i].salt, further[i].salt);
      EXPECT_EQ(decoded->further[i].public_key, first.public_key);
      EXPECT_EQ(decoded->further[i].mtu, first.mtu);
    }
    // To a NIC that stands alone it is the address of the first.
    const auto own = pair.nic(1).create_queue_pair({}).value();
    EXPECT_TRUE(pair.nic(1).connect_queue_pair(own, address.view()));
    for (size_t size = 0; size < address.size; ++size) {
      EXPECT_FALSE(decode_endpoint(address.view().first(size))) << size;
    }
    QueuePairAddress without_port = address;
    const size_t last = address.size - (security == Security::kOff ? 2U : 10U);
    without_port.bytes[last] = without_port.bytes[last + 1] = 0;
    EXPECT_FALSE(decode_endpoint(without_port.view()));
  }
}

TEST(SoftEndpoint, RefusesWhatIsNotOne) {
  SoftNicPair pair;
  const auto id = pair.nic(0).create_queue_pair({}).value();
  const auto good = pair.nic(1).queue_pair_address(pair.nic(1).create_queue_pair({}).value());
  for (size_t size = 0; size < good.size; ++size) {
    const auto result = pair.nic(0).connect_queue_pair(id, good.view().first(size));
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kPeer);
  }
  // Each field of the extended mode out of its range: by its offset, all bits set.
  constexpr size_t kExtensionAt = 34;
  for (const size_t offset : {0, 4, 8, 12, 16, 24, 28}) {
    auto bad = good;
    std::fill_n(bad.bytes.begin() + static_cast<long>(kExtensionAt + offset), 4, 0xFF);
    EXPECT_FALSE(pair.nic(0).connect_queue_pair(id, bad.view())) << offset;
  }
  EXPECT_TRUE(pair.nic(0).connect_queue_pair(id, good.view()));
}

// Fields of the extended mode, each by its offset, with values at its bounds.
TEST(SoftEndpoint, EachFieldHasItsBounds) {
  SoftNicPair pair;
  const auto good = pair.nic(0).queue_pair_address(pair.nic(0).create_queue_pair({}).value());
  constexpr size_t kExtensionAt = 34;
  const auto takes = [&](size_t offset, uint32_t value) {
    auto other = good;
    wire::store_be32(value, &other.bytes[kExtensionAt + offset]);
    return decode_endpoint(other.view()).has_value();
  };
  struct Field {
    size_t offset;
    uint32_t least;
    uint32_t most;
  };
  constexpr uint32_t kMost24 = 0xFFFFFF;
  for (const Field field : {Field{4, 1, 0xFFFF}, Field{8, 2, kMost24}, Field{12, 0, kMost24},
                            Field{24, 256, wire::kMaxDatagramBytes}}) {
    EXPECT_TRUE(takes(field.offset, field.least)) << field.offset;
    EXPECT_TRUE(takes(field.offset, field.most)) << field.offset;
    EXPECT_FALSE(takes(field.offset, field.most + 1)) << field.offset;
    EXPECT_TRUE(field.least == 0 || !takes(field.offset, field.least - 1)) << field.offset;
  }
  constexpr size_t kWindowAt = 16;
  for (uint32_t window = 64; window <= wire::kMaxBitmapWords * 64; window *= 2) {
    EXPECT_TRUE(takes(kWindowAt, window));
    EXPECT_FALSE(takes(kWindowAt, window + 1)) << "no power of two";
  }
  EXPECT_FALSE(takes(kWindowAt, 32));
  EXPECT_FALSE(takes(kWindowAt, wire::kMaxBitmapWords * 128));
  EXPECT_TRUE(takes(20, 1));
  EXPECT_FALSE(takes(20, 0)) << "no room for writes";
}

}  // namespace
}  // namespace pacecar::soft_endpoint_test
