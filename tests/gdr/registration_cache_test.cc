#include "gdr/registration_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace pacecar {
namespace {

using Lease = RegistrationCache::Lease;

constexpr uint64_t kPage = 4096;
constexpr uint64_t kBase = 100 * kPage;
constexpr size_t kCapacity = 64;
constexpr uint32_t kRead = 1;
constexpr uint32_t kWrite = 3;

// A device that keeps a list, and may refuse.
class FakeDevice : public Registrar {
 public:
  struct Entry {
    AddressRange range;
    uint32_t rights = 0;
  };

  Result<uint32_t> add(const AddressRange& range, uint32_t rights) override {
    ++adds;
    if (refuses) return fail(ErrorCode::kPermission, "the memory cannot be locked");
    live[++last_key] = {range, rights};
    return last_key;
  }
  void remove(uint32_t key) override { EXPECT_EQ(live.erase(key), 1U) << "key " << key; }

  std::map<uint32_t, Entry> live;
  uint32_t last_key = 0;
  size_t adds = 0;
  bool refuses = false;
};

class RegistrationCacheTest : public testing::Test {
 protected:
  Lease acquire(uint64_t offset, size_t length, uint32_t rights = kWrite) {
    const Result<Lease> lease = cache_.acquire(kBase + offset, length, rights);
    EXPECT_TRUE(lease.has_value());
    return lease.value_or(Lease{});
  }

  FakeDevice device_;
  RegistrationCache cache_{device_, kCapacity};
};

TEST_F(RegistrationCacheTest, TheSameRangeIsSharedUntilAllAreGone) {
  const Lease first = acquire(0, 2 * kPage);
  EXPECT_EQ(device_.live.at(first.key).range, (AddressRange{kBase, kBase + 2 * kPage}));
  EXPECT_EQ(device_.live.at(first.key).rights, kWrite);
  const Lease second = acquire(0, 2 * kPage);
  EXPECT_EQ(first.key, second.key);
  EXPECT_EQ(device_.adds, 1U);
  EXPECT_FALSE(cache_.last(first));
  cache_.release(first);
  EXPECT_TRUE(cache_.last(second));
  EXPECT_TRUE(device_.live.contains(second.key));
  cache_.release(second);
  EXPECT_TRUE(device_.live.empty());
}

// Else what the first gives up would stay registered as long as the other lasts.
TEST_F(RegistrationCacheTest, PartsAndPagesAreNotShared) {
  const Lease whole = acquire(0, 2 * kPage);
  const Lease part = acquire(100, 100);
  const Lease neighbour = acquire(200, 100);
  EXPECT_NE(whole.key, part.key);
  EXPECT_NE(part.key, neighbour.key);
  cache_.release(whole);
  EXPECT_FALSE(device_.live.contains(whole.key));
  EXPECT_EQ(device_.live.at(part.key).range, (AddressRange{kBase + 100, kBase + 200}));
}

TEST_F(RegistrationCacheTest, OtherRightsAreAnotherRegistration) {
  EXPECT_NE(acquire(0, 10, kRead).key, acquire(0, 10, kWrite).key);
}

TEST_F(RegistrationCacheTest, WhatCannotBeARangeIsRefused) {
  constexpr uint64_t kTop = std::numeric_limits<uint64_t>::max();
  const std::vector<std::pair<uint64_t, size_t>> ranges = {
      {kBase, 0}, {kTop - 10, 100}, {kBase, kTop}, {0, 100}};
  for (const auto& [address, length] : ranges) {
    const auto refused = cache_.acquire(address, length, kWrite);
    ASSERT_FALSE(refused.has_value()) << address << " " << length;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(device_.adds, 0U);
}

TEST_F(RegistrationCacheTest, CapacityBoundsTheLeases) {
  std::vector<Lease> leases;
  while (leases.size() < kCapacity) leases.push_back(acquire(0, 1));
  const auto refused = cache_.acquire(kBase, 1, kWrite);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("PACECAR_MAX_REGIONS"));
  cache_.release(leases.back());
  EXPECT_TRUE(cache_.acquire(kBase, 1, kWrite).has_value());
}

TEST_F(RegistrationCacheTest, ARefusalOfTheDeviceLeavesNothingBehind) {
  device_.refuses = true;
  const auto refused = cache_.acquire(kBase, kPage, kWrite);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kPermission);
  EXPECT_EQ(cache_.leases(), 0U);
  device_.refuses = false;
  EXPECT_TRUE(device_.live.contains(acquire(0, kPage).key));
}

TEST_F(RegistrationCacheTest, ADestroyedCacheDeregistersWhatIsLeft) {
  {
    RegistrationCache other(device_, kCapacity);
    ASSERT_TRUE(other.acquire(kBase, 1, kWrite) && other.acquire(kBase, 9 * kPage, kRead));
    EXPECT_EQ(device_.live.size(), 2U);
  }
  EXPECT_TRUE(device_.live.empty());
}

TEST(RegistrationCacheFork, AChildNeitherUsesNorReleasesWhatItsParentHas) {
  FakeDevice device;
  auto cache = std::make_unique<RegistrationCache>(device, kCapacity);
  const auto lease = cache->acquire(kBase, kPage, kWrite);
  ASSERT_TRUE(lease.has_value());
  const pid_t child = fork();
  if (child == 0) {
    const auto refused = cache->acquire(kBase, kPage, kWrite);
    const bool refuses = !refused && refused.error().code == ErrorCode::kUnavailable;
    cache->release(*lease);
    cache.reset();
    _exit(refuses && device.adds == 1 && device.live.size() == 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(cache->last(*lease));
}

// Against a model that looks at every registration.
RC_GTEST_PROP(RegistrationCacheProperty, SharesWheneverItCanAndKeepsWhatIsUsed, ()) {
  constexpr uint64_t kStep = kPage / 4;
  FakeDevice device;
  RegistrationCache cache(device, kCapacity);
  std::vector<std::pair<AddressRange, Lease>> users;
  const auto operations = *rc::gen::inRange(1, 150);
  for (int i = 0; i < operations; ++i) {
    const size_t adds = device.adds;
    if (users.empty() || (users.size() < kCapacity && *rc::gen::inRange(0, 5) < 3)) {
      const uint64_t begin = kBase + kStep * *rc::gen::inRange<uint64_t>(0, 6);
      const uint64_t length = kStep * *rc::gen::inRange<uint64_t>(1, 4);
      const uint32_t rights = *rc::gen::element(kRead, kWrite);
      const AddressRange range{begin, begin + length};
      const bool held = std::any_of(device.live.begin(), device.live.end(), [&](const auto& one) {
        return one.second.rights == rights && one.second.range == range;
      });
      const auto lease = cache.acquire(begin, length, rights);
      RC_ASSERT(lease.has_value());
      RC_ASSERT(device.adds == adds + (held ? 0 : 1));
      RC_ASSERT(lease->range == range);
      RC_ASSERT(device.live.at(lease->key).rights == rights);
      users.push_back({{begin, begin + length}, *lease});
    } else {
      const auto leaves = users.begin() + *rc::gen::inRange<long>(0, std::ssize(users));
      const Lease lease = leaves->second;
      users.erase(leaves);
      const bool last = std::none_of(users.begin(), users.end(), [&](const auto& user) {
        return user.second.key == lease.key;
      });
      RC_ASSERT(cache.last(lease) == last);
      cache.release(lease);
    }
    std::set<uint32_t> used;
    for (const auto& [range, lease] : users) {
      RC_ASSERT(device.live.at(lease.key).range == range);
      used.insert(lease.key);
    }
    RC_ASSERT(device.live.size() == used.size());
    RC_ASSERT(cache.leases() == users.size());
  }
}

}  // namespace
}  // namespace pacecar
