// Memory that CUDA's calls know, and the trap for processors that touch GPU memory. What the
// environment says is read once in a process, so that it is tried in processes of its own.
#include "bench/nccl/cpu_device/memory.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "bench/nccl/cpu_device/settings.h"

namespace pacecar::memory_test {
namespace {

using nccl::cpu::Allocation;
using nccl::cpu::Memory;
using nccl::cpu::MemoryKind;
using nccl::cpu::settings;
using nccl::cpu::view;

constexpr size_t kDevicePage = size_t{2} << 20;
constexpr std::array kKinds{MemoryKind::kHost, MemoryKind::kDevice};

Memory& memory() { return Memory::get(); }

char* allocate(size_t bytes, MemoryKind kind) {
  return static_cast<char*>(memory().allocate(bytes, kind, 0));
}

bool zeroed(const char* from, size_t bytes) {
  return std::all_of(from, from + bytes, [](char one) { return one == 0; });
}

TEST(Memory, FindsWhatHoldsAnAddress) {
  constexpr size_t kBytes = 10'000;
  for (const MemoryKind kind : kKinds) {
    char* const begin = static_cast<char*>(memory().allocate(kBytes, kind, 3));
    ASSERT_NE(begin, nullptr);
    for (const size_t inside : {size_t{0}, size_t{1}, size_t{5'000}, kBytes - 1}) {
      const auto found = memory().find(begin + inside);
      ASSERT_TRUE(found.has_value()) << inside;
      EXPECT_EQ(found->base, reinterpret_cast<uintptr_t>(begin));
      EXPECT_EQ(found->bytes, kBytes);
      EXPECT_EQ(found->kind, kind);
      EXPECT_EQ(found->device, 3);
    }
    EXPECT_FALSE(memory().find(begin - 1).has_value());
    EXPECT_FALSE(memory().find(begin + kBytes).has_value());
    EXPECT_TRUE(memory().release(begin));
    EXPECT_FALSE(memory().find(begin).has_value());
  }
}

TEST(Memory, KnowsNothingOfOtherAddresses) {
  int local = 0;
  EXPECT_FALSE(memory().find(&local).has_value());
  EXPECT_FALSE(memory().find(nullptr).has_value());
  EXPECT_FALSE(memory().release(&local));
}

TEST(Memory, ReleasesOnlyWhereItBegins) {
  for (const MemoryKind kind : kKinds) {
    char* const begin = allocate(100, kind);
    EXPECT_FALSE(memory().release(begin + 1));
    EXPECT_TRUE(memory().find(begin).has_value());
    EXPECT_TRUE(memory().release(begin));
    EXPECT_FALSE(memory().release(begin));
  }
}

TEST(Memory, IsAlignedZeroedAndWritable) {
  for (const MemoryKind kind : kKinds) {
    const size_t unit = kind == MemoryKind::kDevice ? kDevicePage : 4096;
    for (const size_t bytes : {size_t{1}, size_t{4096}, kDevicePage + 1}) {
      char* const begin = allocate(bytes, kind);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(begin) % unit, 0U);
      EXPECT_TRUE(zeroed(begin, bytes));
      std::memset(begin, 1, bytes);
      EXPECT_TRUE(memory().release(begin));
    }
  }
}

TEST(Memory, OfNoBytesHasAnAddressOfItsOwn) {
  for (const MemoryKind kind : kKinds) {
    char* const one = allocate(0, kind);
    char* const other = allocate(0, kind);
    ASSERT_NE(one, nullptr);
    EXPECT_NE(one, other);
    EXPECT_TRUE(memory().find(one).has_value());
    EXPECT_TRUE(memory().release(one));
    EXPECT_TRUE(memory().release(other));
  }
}

TEST(Memory, UsedAgainIsZeroed) {
  char* const first = allocate(3 * kDevicePage, MemoryKind::kDevice);
  std::memset(first, 7, 3 * kDevicePage);
  ASSERT_TRUE(memory().release(first));
  char* const again = allocate(3 * kDevicePage, MemoryKind::kDevice);
  EXPECT_EQ(again, first);  // otherwise this test shows nothing
  EXPECT_TRUE(zeroed(again, 3 * kDevicePage));
  EXPECT_TRUE(memory().release(again));
}

TEST(Memory, OfNeighboursIsOnePieceWhenBothAreReleased) {
  for (const bool last_first : {false, true}) {
    std::vector<char*> parts;
    for (int i = 0; i < 3; ++i) parts.push_back(allocate(kDevicePage, MemoryKind::kDevice));
    ASSERT_EQ(parts[2], parts[0] + 2 * kDevicePage);
    EXPECT_TRUE(memory().release(parts[last_first ? 2 : 0]));
    EXPECT_TRUE(memory().release(parts[last_first ? 0 : 2]));
    EXPECT_TRUE(memory().release(parts[1]));
    char* const whole = allocate(3 * kDevicePage, MemoryKind::kDevice);
    EXPECT_EQ(whole, parts[0]);
    EXPECT_TRUE(memory().release(whole));
  }
}

TEST(Memory, ThatThereIsNotIsRefused) {
  for (const MemoryKind kind : kKinds) {
    for (const size_t too_many :
         {std::numeric_limits<size_t>::max(), std::numeric_limits<size_t>::max() - kDevicePage,
          std::numeric_limits<size_t>::max() / 2}) {
      EXPECT_EQ(allocate(too_many, kind), nullptr) << too_many;
    }
  }
  EXPECT_EQ(allocate((size_t{64} << 30) + 1, MemoryKind::kDevice), nullptr);
}

TEST(Memory, RegisteredByItsOwnerIsKnownAndStaysHis) {
  constexpr size_t kPage = 4096;
  const std::unique_ptr<char, decltype(&std::free)> own(
      static_cast<char*>(std::aligned_alloc(kPage, 3 * kPage)), std::free);
  std::memset(own.get(), 5, 3 * kPage);
  char* const begin = own.get() + kPage;
  memory().register_host(begin, 100, 2);
  EXPECT_FALSE(memory().find(begin - 1).has_value());
  EXPECT_FALSE(memory().find(begin + 100).has_value());
  const auto found = memory().find(begin + 99);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->kind, MemoryKind::kHost);
  EXPECT_EQ(found->bytes, 100U);
  EXPECT_EQ(found->device, 2);
  EXPECT_TRUE(memory().release(begin));
  EXPECT_FALSE(memory().find(begin).has_value());
  EXPECT_TRUE(std::all_of(own.get(), own.get() + 3 * kPage, [](char one) { return one == 5; }));
}

TEST(Memory, IdsAreNeverGivenTwice) {
  std::set<uint64_t> ids;
  std::vector<char> own(10);
  for (int i = 0; i < 20; ++i) {
    for (const MemoryKind kind : kKinds) {
      char* const begin = allocate(1, kind);
      EXPECT_TRUE(ids.insert(memory().find(begin)->id).second);
      EXPECT_TRUE(memory().release(begin));
    }
    memory().register_host(own.data(), own.size(), 0);
    EXPECT_TRUE(ids.insert(memory().find(own.data())->id).second);
    EXPECT_TRUE(memory().release(own.data()));
  }
}

TEST(Memory, WithoutTheTrapIsWhereThePointerPoints) {
  EXPECT_FALSE(memory().trapped());
  char* const begin = allocate(100, MemoryKind::kDevice);
  EXPECT_EQ(view(begin), begin);
  int local = 0;
  EXPECT_EQ(view(&local), &local);
  EXPECT_EQ(view(static_cast<char*>(nullptr)), nullptr);
  EXPECT_TRUE(memory().release(begin));
}

TEST(Memory, IsUsedByManyThreads) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([i] {
      for (int round = 0; round < 30; ++round) {
        char* const begin = allocate(100, kKinds[static_cast<size_t>(round) % 2]);
        std::memset(begin, i, 100);
        EXPECT_TRUE(memory().find(begin + 99).has_value());
        EXPECT_TRUE(memory().release(begin));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// GPU memory against a map of the allocations.
RC_GTEST_PROP(MemoryProperty, PiecesDoNotOverlap, ()) {
  std::map<char*, size_t> living;
  const auto steps = *rc::gen::inRange(1, 60);
  for (int i = 0; i < steps; ++i) {
    if (living.empty() || *rc::gen::inRange(0, 5) < 3) {
      const size_t bytes = *rc::gen::inRange<size_t>(0, 4 * kDevicePage);
      char* const begin = allocate(bytes, MemoryKind::kDevice);
      RC_ASSERT(begin != nullptr);
      RC_ASSERT(living.emplace(begin, bytes).second);
    } else {
      const auto one =
          std::next(living.begin(), *rc::gen::inRange<long>(0, static_cast<long>(living.size())));
      RC_ASSERT(memory().release(one->first));
      living.erase(one);
    }
    const char* end = nullptr;
    for (const auto& [begin, bytes] : living) {
      RC_ASSERT(begin >= end);
      end = begin + bytes;
      RC_ASSERT(memory().find(begin)->bytes == bytes);
    }
  }
  for (const auto& [begin, bytes] : living) RC_ASSERT(memory().release(begin));
}

// --- processes of their own ---

class OwnProcess : public testing::Test {
 protected:
  OwnProcess() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  ~OwnProcess() override { GTEST_FLAG_SET(death_test_style, "fast"); }
};
using MemoryTrap = OwnProcess;
using Settings = OwnProcess;

// GPU memory that the processor may not touch.
char* trapped_memory() {
  setenv("CPU_GPU_TRAP", "1", 1);
  // The signal is expected: nobody needs a report, or all the memory in a file.
  std::signal(SIGSEGV, SIG_DFL);
  const rlimit no_file{};
  setrlimit(RLIMIT_CORE, &no_file);
  char* const begin = allocate(2 * kDevicePage, MemoryKind::kDevice);
  if (!memory().trapped() || begin == nullptr) std::_Exit(1);
  return begin;
}

TEST_F(MemoryTrap, EndsAProcessThatReadsGpuMemory) {
  const auto reads = [] {
    const volatile char* const begin = trapped_memory();
    std::_Exit(begin[100]);
  };
  EXPECT_EXIT(reads(), testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(MemoryTrap, EndsAProcessThatWritesGpuMemory) {
  const auto writes = [] {
    volatile char* const begin = trapped_memory();
    begin[kDevicePage] = 1;
    std::_Exit(1);
  };
  EXPECT_EXIT(writes(), testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(MemoryTrap, LetsTheDeviceReadAndWriteThroughItsView) {
  const auto works = [] {
    char* const begin = trapped_memory();
    bool good = view(begin) != begin && view(begin + 9) == view(begin) + 9;
    good = good && zeroed(view(begin), 2 * kDevicePage);
    std::memset(view(begin), 9, 2 * kDevicePage);
    good = good && view(begin)[2 * kDevicePage - 1] == 9;
    // Memory is found by its host address only, and memory used again is zeroed here, too.
    good = good && memory().find(begin + 1) && !memory().find(view(begin));
    good = good && memory().release(begin) && allocate(kDevicePage, MemoryKind::kDevice) == begin;
    good = good && zeroed(view(begin), kDevicePage);
    std::_Exit(good ? 0 : 1);
  };
  EXPECT_EXIT(works(), testing::ExitedWithCode(0), "");
}

TEST_F(MemoryTrap, LeavesHostMemoryAlone) {
  const auto works = [] {
    trapped_memory();
    char* const host = allocate(100, MemoryKind::kHost);
    host[99] = 1;
    std::_Exit(view(host) == host ? 0 : 1);
  };
  EXPECT_EXIT(works(), testing::ExitedWithCode(0), "");
}

TEST_F(Settings, AreReadFromTheEnvironment) {
  const auto reads = [] {
    setenv("CPU_GPU_COUNT", "64", 1);
    setenv("CPU_GPU_BUS", "192", 1);
    setenv("CPU_GPU_TRAP", "1", 1);
    setenv("CPU_GPU_LOG", "1", 1);
    const auto& read = settings();
    std::_Exit(read.devices == 64 && read.first_bus == 192 && read.trap && read.log ? 0 : 1);
  };
  EXPECT_EXIT(reads(), testing::ExitedWithCode(0), "");
}

TEST_F(Settings, HaveDefaults) {
  const auto reads = [] {
    unsetenv("CPU_GPU_COUNT");
    setenv("CPU_GPU_BUS", "", 1);
    const auto& read = settings();
    std::_Exit(read.devices == 1 && read.first_bus == 1 && !read.trap && !read.log ? 0 : 1);
  };
  EXPECT_EXIT(reads(), testing::ExitedWithCode(0), "");
}

TEST_F(Settings, OutOfRangeEndTheProgramWithASentence) {
  const auto reads = [](const char* name, const char* value) {
    setenv(name, value, 1);
    settings();
    std::_Exit(0);
  };
  EXPECT_EXIT(reads("CPU_GPU_COUNT", "65"), testing::ExitedWithCode(1),
              "CPU_GPU_COUNT=65: give a number from 1 to 64");
  EXPECT_EXIT(reads("CPU_GPU_COUNT", "0"), testing::ExitedWithCode(1), "from 1 to 64");
  EXPECT_EXIT(reads("CPU_GPU_BUS", "1x"), testing::ExitedWithCode(1), "from 1 to 192");
  EXPECT_EXIT(reads("CPU_GPU_TRAP", "yes"), testing::ExitedWithCode(1), "from 0 to 1");
}

}  // namespace
}  // namespace pacecar::memory_test
