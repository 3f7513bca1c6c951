// The structures without locks, under a checker of the C++ memory model: other processors than this
// one reorder more.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "transport/base/check.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"
// clang-format off
#include "tests/model/weak_memory.h"
#include "transport/base/spsc_ring.h"
#include "transport/engine/doorbell.h"
#include "transport/engine/submissions.h"
#undef std
// clang-format on

namespace pacecar::weak_memory_test {
namespace {

template <typename World>
void expect_holds(rl::scheduler_type_e search, uint64_t runs) {
  rl::test_params params;
  params.search_type = search;
  params.iteration_count = runs;
  params.context_bound = 3;
  EXPECT_TRUE(rl::simulate<World>(params)) << "see the history above";
}

bool has_rung(const Doorbell& bell) {
  pollfd readable{bell.fd(), POLLIN, 0};
  return poll(&readable, 1, 0) == 1;
}

// A sleeper that has just answered a bell sleeps again while work comes.
struct Sleeper : rl::test_suite<Sleeper, 2> {
  std::unique_ptr<Doorbell> bell = Doorbell::make().value();
  rl::atomic<int> work{0};
  bool sleeps = false;

  void thread(unsigned index) {
    if (index == 0) {
      work.store(1, rl::mo_relaxed, $);
      bell->ring();
      return;
    }
    bell->expect();
    bell->answer();
    bell->expect();
    sleeps = work.load(rl::mo_relaxed, $) == 0;
  }
  void after() { RL_ASSERT(!sleeps || has_rung(*bell)); }
};

TEST(WeakMemory, ADoorbellWakesWhoeverHasNotSeenTheWork) {
  expect_holds<Sleeper>(rl::sched_full, 1);
}

// Two threads submit; the engine takes all operations, and sees all earlier writes.
struct Submitted : rl::test_suite<Submitted, 3> {
  struct Operation {
    Operation* next = nullptr;
    uint32_t connection = 0;
    rl::var<int> value;
  };
  Submissions<Operation> submissions;
  std::array<std::array<Operation, 2>, 2> operations;
  std::array<int, 2> taken{};

  void thread(unsigned index) {
    if (index == 2) return drain();
    for (int i = 0; i < 2; ++i) {
      operations[index][static_cast<size_t>(i)].value($) = i;
      submissions.push(index, operations[index][static_cast<size_t>(i)]);
    }
  }
  void drain() {
    submissions.drain([this](uint32_t connection, Operation& operation) {
      RL_ASSERT(operation.value($) == taken[connection]);
      ++taken[connection];
    });
  }
  void after() {
    drain();
    RL_ASSERT(taken[0] == 2 && taken[1] == 2 && submissions.empty());
  }
};

TEST(WeakMemory, SubmissionsArriveWholeAndInTheOrderOfEachThread) {
  expect_holds<Submitted>(rl::sched_bound, 1);
  expect_holds<Submitted>(rl::sched_random, 20'000);
}

struct Passed : rl::test_suite<Passed, 2> {
  static constexpr int kCount = 3;
  SpscRing<int> ring{2};
  std::array<rl::var<int>, kCount> written;
  int got = 0;

  void thread(unsigned index) {
    for (int tries = 0, i = 0; tries < 6 && i < kCount; ++tries) {
      i += static_cast<int>(index == 0 ? give(i) : take());
    }
  }
  bool give(int i) {
    if (ring.full()) return false;
    written[static_cast<size_t>(i)]($) = i;
    return ring.push(i);
  }
  bool take() {
    int i = -1;
    if (ring.empty() || !ring.pop(i)) return false;
    RL_ASSERT(i == got++);
    RL_ASSERT(written[static_cast<size_t>(i)]($) == i);
    return true;
  }
};

TEST(WeakMemory, ARingPassesWhatWasWrittenBefore) {
  expect_holds<Passed>(rl::sched_random, 50'000);
}

}  // namespace
}  // namespace pacecar::weak_memory_test
