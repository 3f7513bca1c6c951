#include "transport/nic/rc_endpoint.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace pacecar::rc_endpoint_test {
namespace {

RcEndpoint roce(uint8_t lanes = 4, uint8_t extension_bytes = 0) {
  RcEndpoint endpoint{.gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 1},
                      .mtu = 1024,
                      .read_depth = 16,
                      .lanes = lanes,
                      .extension_bytes = extension_bytes};
  for (uint32_t i = 0; i < lanes; ++i) endpoint.lane[i] = {0xFFFFFF - i, 0xABCDEF + i};
  for (uint8_t i = 0; i < extension_bytes; ++i) {
    endpoint.extension[i] = static_cast<uint8_t>(i + 1);
  }
  return endpoint;
}

void expect_refused(std::span<const uint8_t> bytes) {
  const auto endpoint = decode_rc_endpoint(bytes);
  ASSERT_FALSE(endpoint);
  EXPECT_EQ(endpoint.error().code, ErrorCode::kPeer);
}

// The bytes of a valid address after `change`.
template <typename Change>
void expect_refused_after(Change change, const RcEndpoint& endpoint = roce()) {
  QueuePairAddress address = encode(endpoint);
  change(address.bytes);
  expect_refused(address.view());
}

TEST(RcEndpoint, ComesBackAsItWasForEverySize) {
  for (const uint8_t lanes : {1, 4, 8}) {
    for (const uint8_t extension : {0, 48, 52}) {
      const RcEndpoint endpoint = roce(lanes, extension);
      const auto decoded = decode_rc_endpoint(encode(endpoint).view());
      ASSERT_TRUE(decoded) << decoded.error().message;
      EXPECT_EQ(*decoded, endpoint);
    }
  }
}

TEST(RcEndpoint, InfinibandHasALidAndMayHaveNoGid) {
  RcEndpoint endpoint = roce();
  endpoint.link_layer = LinkLayer::kInfiniband;
  endpoint.lid = 0xBFFF;
  endpoint.gid = {};
  const auto decoded = decode_rc_endpoint(encode(endpoint).view());
  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, endpoint);
}

TEST(RcEndpoint, OtherLengthsAreRefused) {
  const QueuePairAddress address = encode(roce(2, 5));
  for (uint8_t size = 0; size < address.size; ++size) expect_refused(address.view().first(size));
  expect_refused(std::span(address.bytes).first(address.size + 1U));
}

TEST(RcEndpoint, ImpossibleFieldsAreRefused) {
  expect_refused_after([](auto& bytes) { bytes[0] ^= 1; });                  // magic
  expect_refused_after([](auto& bytes) { std::fill_n(&bytes[4], 16, 0); });  // GID
  for (const int mtu : {0, 128, 1500, 8192}) {
    expect_refused_after([mtu](auto& bytes) {
      bytes[22] = static_cast<uint8_t>(mtu >> 8);
      bytes[23] = static_cast<uint8_t>(mtu);
    });
  }
  expect_refused_after([](auto& bytes) { bytes[24] = 0; });  // link layer
  expect_refused_after([](auto& bytes) { bytes[24] = 3; });
  expect_refused_after([](auto& bytes) { bytes[24] = 2; });  // LID 0
  for (const int lanes : {0, 3, 5, 9, 255}) {
    expect_refused_after([lanes](auto& bytes) { bytes[26] = static_cast<uint8_t>(lanes); });
  }
  expect_refused_after([](auto& bytes) { bytes[27] = 255; });                    // extension
  expect_refused_after([](auto& bytes) { std::fill_n(&bytes[28 + 6], 3, 0); });  // number 0
  RcEndpoint multicast = roce();
  multicast.link_layer = LinkLayer::kInfiniband;
  multicast.lid = 1;
  expect_refused_after([](auto& bytes) { bytes[20] = 0xC0; }, multicast);
}

}  // namespace
}  // namespace pacecar::rc_endpoint_test
