#include "transport/ofi/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pacecar::address_test {
namespace {

using testing::HasSubstr;

OfiAddress example(size_t endpoints, size_t name_bytes) {
  OfiAddress address{.provider = ofi_provider_tag("tcp;ofi_rxm"),
                     .secret = 0x89ABCDEF01234567,
                     .rings = 0x0123456789ABCDEF,
                     .rings_key = 0xFEDCBA9876543210,
                     .endpoints = {}};
  for (size_t i = 0; i < endpoints; ++i) {
    address.endpoints.emplace_back(name_bytes, static_cast<uint8_t>(i + 1));
  }
  return address;
}

void expect_same(const OfiAddress& address, const OfiAddress& other) {
  EXPECT_EQ(address.provider, other.provider);
  EXPECT_EQ(address.secret, other.secret);
  EXPECT_EQ(address.rings, other.rings);
  EXPECT_EQ(address.rings_key, other.rings_key);
  EXPECT_EQ(address.endpoints, other.endpoints);
}

TEST(OfiAddress, AddressSurvivesItsEncodingForAllNumbersAndLengthsOfNames) {
  size_t name_bytes = 1;
  for (; max_endpoints(name_bytes) > 0; ++name_bytes) {
    for (size_t endpoints = 1; endpoints <= max_endpoints(name_bytes); ++endpoints) {
      const OfiAddress address = example(endpoints, name_bytes);
      const auto back = decode_ofi_address(encode(address).view());
      ASSERT_TRUE(back) << endpoints << " of " << name_bytes;
      expect_same(*back, address);
    }
  }
  EXPECT_GE(name_bytes, 64U) << "names that are text are long";
}

TEST(OfiAddressDeathTest, TooManyEndpointsEndTheProcess) {
  EXPECT_DEATH(encode(example(max_endpoints(16) + 1, 16)), "max_endpoints");
}

TEST(OfiAddress, TruncatedAndTooLongAddressesAreRefused) {
  const QueuePairAddress whole = encode(example(2, 28));
  for (size_t size = 0; size < whole.size; ++size) {
    const auto decoded = decode_ofi_address(whole.view().first(size));
    ASSERT_FALSE(decoded) << size;
    EXPECT_EQ(decoded.error().code, ErrorCode::kPeer);
    EXPECT_THAT(decoded.error().message, HasSubstr("not that of a libfabric NIC: choose NICs"));
  }
  std::vector<uint8_t> longer(whole.view().begin(), whole.view().end());
  longer.push_back(0);
  EXPECT_FALSE(decode_ofi_address(longer));
}

// A decoded address is within the bounds that its users rely on, and encodes to the same bytes.
TEST(OfiAddress, ChangedByteIsRefusedOrDecodedAsItIs) {
  const QueuePairAddress whole = encode(example(2, 28));
  for (size_t at = 0; at < whole.size; ++at) {
    for (int value = 0; value < 256; ++value) {
      QueuePairAddress changed = whole;
      changed.bytes[at] = static_cast<uint8_t>(value);
      const auto decoded = decode_ofi_address(changed.view());
      if (!decoded) continue;
      ASSERT_TRUE(at >= 4 || value == whole.bytes[at])
          << "the first bytes name the kind of address";
      ASSERT_FALSE(decoded->endpoints.empty());
      const size_t name_bytes = decoded->endpoints.front().size();
      ASSERT_GT(name_bytes, 0U);
      ASSERT_LE(decoded->endpoints.size(), max_endpoints(name_bytes));
      const QueuePairAddress again = encode(*decoded);
      EXPECT_TRUE(std::ranges::equal(again.view(), changed.view())) << at << ": " << value;
    }
  }
}

TEST(OfiAddress, DifferentProvidersHaveDifferentTags) {
  EXPECT_NE(ofi_provider_tag("tcp;ofi_rxm"), ofi_provider_tag("udp;ofi_rxd"));
  EXPECT_NE(ofi_provider_tag("tcp"), ofi_provider_tag("tcp;ofi_rxm"));
  EXPECT_EQ(ofi_provider_tag("efa"), ofi_provider_tag("efa"));
}

}  // namespace
}  // namespace pacecar::address_test
