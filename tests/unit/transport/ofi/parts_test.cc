// The parts of a libfabric NIC that need no provider: the peer's regions, and the operations
// that the provider holds.
#include <gtest/gtest.h>

#include "transport/ofi/operations.h"
#include "transport/ofi/queue_pair.h"

namespace pacecar::ofi_parts_test {
namespace {

constexpr uint32_t kKey = 7;
constexpr OfiRemoteRegion kRegion{.address = 4096, .place = 0, .provider_key = 1, .length = 64};

TEST(OfiRemoteRegions, IsUsableFromTheAnswerToTheRevocation) {
  OfiRemoteRegions regions;
  EXPECT_EQ(regions.usable(kKey), nullptr);
  ASSERT_TRUE(regions.add(kKey, kRegion));
  ASSERT_NE(regions.usable(kKey), nullptr);
  EXPECT_TRUE(regions.usable(kKey)->covers(4096, 64));
  EXPECT_FALSE(regions.usable(kKey)->covers(4097, 64));
  EXPECT_TRUE(regions.revoke(kKey)) << "no write is outstanding";
  EXPECT_FALSE(regions.known(kKey));
}

TEST(OfiRemoteRegions, RevocationIsAnsweredAfterTheLastWrite) {
  OfiRemoteRegions regions;
  regions.add(kKey, kRegion);
  regions.on_write_started(kKey);
  regions.on_write_started(kKey);
  EXPECT_FALSE(regions.revoke(kKey));
  EXPECT_EQ(regions.usable(kKey), nullptr) << "no write may follow";
  EXPECT_TRUE(regions.known(kKey)) << "the peer is not asked again yet";
  EXPECT_FALSE(regions.on_write_done(kKey));
  EXPECT_TRUE(regions.on_write_done(kKey));
  EXPECT_FALSE(regions.known(kKey));
}

TEST(OfiRemoteRegions, EmptyAndWrappingAnswersAreNone) {
  OfiRemoteRegions regions;
  EXPECT_FALSE(regions.add(kKey, {.address = 4096}));
  EXPECT_FALSE(regions.add(kKey, {.address = ~uint64_t{0} - 10, .length = 64}));
  EXPECT_FALSE(regions.known(kKey));
  EXPECT_TRUE(regions.revoke(kKey)) << "an unknown region is not in use";
}

TEST(OfiOperations, OnlyThoseInUseAreFoundAndRead) {
  OfiOperations operations(3);
  OfiOperation* const first = operations.take(OfiOperation::Kind::kWrite);
  operations.take(OfiOperation::Kind::kMessage);
  operations.give_back(*first);
  OfiOperation* const third = operations.take(OfiOperation::Kind::kWrite);
  third->local_key = kKey;
  EXPECT_TRUE(operations.reads(kKey));
  operations.give_back(*third);
  EXPECT_FALSE(operations.reads(kKey));
  EXPECT_EQ(operations.find(&third->context), nullptr) << "it is free";
  EXPECT_EQ(operations.in_use(), 1U);
}

}  // namespace
}  // namespace pacecar::ofi_parts_test
