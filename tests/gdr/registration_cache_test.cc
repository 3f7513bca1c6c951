#include "gdr/registration_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace pacecar::registration_cache_test {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kBase = 100 * kPage;
constexpr size_t kCapacity = 64;
constexpr uint32_t kRead = 1;
constexpr uint32_t kWrite = 3;

// A device that lists its registrations, and may refuse.
class FakeDevice {
 public:
  struct Entry {
    AddressRange range;
    uint32_t rights = 0;
  };

  Result<uint32_t> acquire(RegistrationCache& cache, uint64_t begin, uint64_t length,
                           uint32_t rights, uint64_t allocation = RegistrationCache::kHost) {
    const AddressRange range{begin, begin + length};
    return cache.acquire({.range = range, .rights = rights, .allocation = allocation}, [&] {
      return add({range, rights});
    });
  }

  std::map<uint32_t, Entry> live;
  std::atomic<size_t> adds = 0;
  bool refuses = false;
  std::function<void()> while_registering;

 private:
  Result<RegistrationCache::Registration> add(const Entry& entry) {
    ++adds;
    if (refuses) return fail(ErrorCode::kPermission, "the memory cannot be locked");
    if (while_registering) while_registering();
    const std::lock_guard lock(mutex_);
    live[++last_key_] = entry;
    const auto forget = [this, key = last_key_](void*) { remove(key); };
    return RegistrationCache::Registration{last_key_, {&live, forget}};
  }
  void remove(uint32_t key) {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(live.erase(key), 1U) << "key " << key;
  }

  std::mutex mutex_;
  uint32_t last_key_ = 0;
};

class RegistrationCacheTest : public testing::Test {
 protected:
  uint32_t acquire(uint64_t offset, size_t length, uint32_t rights = kWrite,
                   uint64_t allocation = RegistrationCache::kHost) {
    const auto key = device_.acquire(cache_, kBase + offset, length, rights, allocation);
    EXPECT_TRUE(key.has_value());
    return key.value_or(0);
  }
  void release(uint32_t key) { cache_.release(key).reset(); }

  FakeDevice device_;
  RegistrationCache cache_{kCapacity};
};

TEST_F(RegistrationCacheTest, SameRangeIsSharedUntilTheLastRelease) {
  const uint32_t first = acquire(0, 2 * kPage);
  EXPECT_EQ(device_.live.at(first).range, (AddressRange{kBase, kBase + 2 * kPage}));
  EXPECT_EQ(device_.live.at(first).rights, kWrite);
  const uint32_t second = acquire(0, 2 * kPage);
  EXPECT_EQ(first, second);
  EXPECT_EQ(device_.adds, 1U);
  EXPECT_FALSE(cache_.last(first));
  release(first);
  EXPECT_TRUE(cache_.last(second));
  EXPECT_TRUE(device_.live.contains(second));
  release(second);
  EXPECT_TRUE(device_.live.empty());
}

// Otherwise a released range would stay registered as long as another one that overlaps it.
TEST_F(RegistrationCacheTest, PartsAndPagesAreNotShared) {
  const uint32_t whole = acquire(0, 2 * kPage);
  const uint32_t part = acquire(100, 100);
  const uint32_t neighbour = acquire(200, 100);
  EXPECT_NE(whole, part);
  EXPECT_NE(part, neighbour);
  release(whole);
  EXPECT_FALSE(device_.live.contains(whole));
  EXPECT_EQ(device_.live.at(part).range, (AddressRange{kBase + 100, kBase + 200}));
}

TEST_F(RegistrationCacheTest, OtherRightsNeedAnotherRegistration) {
  EXPECT_NE(acquire(0, 10, kRead), acquire(0, 10, kWrite));
}

// Different GPU allocations may have the same address, one after another.
TEST_F(RegistrationCacheTest, OtherAllocationNeedsAnotherRegistration) {
  const uint32_t first = acquire(0, kPage, kWrite, 7);
  EXPECT_EQ(acquire(0, kPage, kWrite, 7), first);
  EXPECT_NE(acquire(0, kPage, kWrite, 8), first);
  EXPECT_NE(acquire(0, kPage, kWrite), first);
  constexpr uint64_t kUnknown = RegistrationCache::kUnknown;
  EXPECT_NE(acquire(0, kPage, kWrite, kUnknown), acquire(0, kPage, kWrite, kUnknown));
}

TEST_F(RegistrationCacheTest, OtherRangesAreServedDuringARegistration) {
  const uint32_t there = acquire(0, kPage);
  bool registering = false;
  device_.while_registering = [&] {
    if (std::exchange(registering, true)) return;
    EXPECT_EQ(acquire(0, kPage), there);
    EXPECT_NE(acquire(kPage, kPage), there);
    release(there);
  };
  EXPECT_NE(acquire(2 * kPage, kPage), there);
}

TEST_F(RegistrationCacheTest, ConcurrentAcquiresOfARangeShareOneRegistration) {
  constexpr size_t kThreads = 4;
  std::array<uint32_t, kThreads> keys{};
  device_.while_registering = [] { std::this_thread::yield(); };
  for (int round = 0; round < 200; ++round) {
    {
      std::vector<std::jthread> threads;
      for (uint32_t& key : keys) threads.emplace_back([&] { key = acquire(0, kPage); });
    }
    EXPECT_EQ(std::ranges::count(keys, keys.front()), kThreads);
    EXPECT_EQ(device_.live.size(), 1U);
    for (const uint32_t key : keys) release(key);
    EXPECT_TRUE(device_.live.empty());
  }
}

TEST_F(RegistrationCacheTest, InvalidRangeIsRefused) {
  constexpr uint64_t kTop = std::numeric_limits<uint64_t>::max();
  const std::vector<std::pair<uint64_t, size_t>> ranges = {
      {kBase, 0}, {kTop - 10, 100}, {kBase, kTop}, {0, 100}};
  for (const auto& [address, length] : ranges) {
    const auto refused = device_.acquire(cache_, address, length, kWrite);
    ASSERT_FALSE(refused.has_value()) << address << " " << length;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(device_.adds, 0U);
}

TEST_F(RegistrationCacheTest, CapacityBoundsTheUsers) {
  std::vector<uint32_t> users;
  while (users.size() < kCapacity) users.push_back(acquire(0, 1));
  const auto refused = device_.acquire(cache_, kBase, 1, kWrite);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("PACECAR_MAX_REGIONS"));
  release(users.back());
  EXPECT_TRUE(device_.acquire(cache_, kBase, 1, kWrite).has_value());
}

TEST_F(RegistrationCacheTest, RefusedRegistrationLeavesNoUser) {
  device_.refuses = true;
  const auto refused = device_.acquire(cache_, kBase, kPage, kWrite);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kPermission);
  EXPECT_EQ(cache_.users(), 0U);
  device_.refuses = false;
  EXPECT_TRUE(device_.live.contains(acquire(0, kPage)));
}

TEST_F(RegistrationCacheTest, DestroyedCacheDeregistersItsRanges) {
  {
    RegistrationCache other(kCapacity);
    ASSERT_TRUE(device_.acquire(other, kBase, 1, kWrite) &&
                device_.acquire(other, kBase, 9 * kPage, kRead));
    EXPECT_EQ(device_.live.size(), 2U);
  }
  EXPECT_TRUE(device_.live.empty());
}

TEST(RegistrationCacheFork, ForkedChildNeitherUsesNorReleasesRegistrations) {
  FakeDevice device;
  auto cache = std::make_unique<RegistrationCache>(kCapacity);
  const auto key = device.acquire(*cache, kBase, kPage, kWrite);
  ASSERT_TRUE(key.has_value());
  const pid_t child = fork();
  if (child == 0) {
    const auto refused = device.acquire(*cache, kBase, kPage, kWrite);
    const bool refuses = !refused && refused.error().code == ErrorCode::kUnavailable;
    cache->release(*key).reset();
    cache.reset();
    _exit(refuses && device.adds == 1 && device.live.size() == 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(cache->last(*key));
}

// Compared with a model that searches all registrations.
RC_GTEST_PROP(RegistrationCacheProperty, EqualRangesShareAndUsedOnesStayRegistered, ()) {
  constexpr uint64_t kStep = kPage / 4;
  FakeDevice device;
  RegistrationCache cache(kCapacity);
  std::vector<std::pair<AddressRange, uint32_t>> users;
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
      const auto key = device.acquire(cache, begin, length, rights);
      RC_ASSERT(key.has_value());
      RC_ASSERT(device.adds == adds + (held ? 0 : 1));
      RC_ASSERT(device.live.at(*key).rights == rights);
      users.push_back({range, *key});
    } else {
      const auto leaves = users.begin() + *rc::gen::inRange<long>(0, std::ssize(users));
      const uint32_t key = leaves->second;
      users.erase(leaves);
      const bool last = std::none_of(users.begin(), users.end(),
                                     [&](const auto& user) { return user.second == key; });
      RC_ASSERT(cache.last(key) == last);
      cache.release(key).reset();
    }
    std::set<uint32_t> used;
    for (const auto& [range, key] : users) {
      RC_ASSERT(device.live.at(key).range == range);
      used.insert(key);
    }
    RC_ASSERT(device.live.size() == used.size());
    RC_ASSERT(cache.users() == users.size());
  }
}

}  // namespace
}  // namespace pacecar::registration_cache_test
