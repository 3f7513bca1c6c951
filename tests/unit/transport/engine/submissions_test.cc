#include "transport/engine/submissions.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

namespace pacecar::submissions_test {
namespace {

struct Operation {
  Operation* next = nullptr;
  uint32_t connection = 0;
  int value = 0;
};
using Taken = std::vector<std::pair<uint32_t, int>>;

Taken drain(Submissions<Operation>& submissions) {
  Taken taken;
  const size_t count = submissions.drain([&](uint32_t connection, Operation& operation) {
    taken.emplace_back(connection, operation.value);
  });
  EXPECT_EQ(count, taken.size());
  return taken;
}

TEST(Submissions, OrderIsKept) {
  Submissions<Operation> submissions;
  std::array<Operation, 3> operations{Operation{.value = 1}, {.value = 2}, {.value = 3}};
  EXPECT_TRUE(submissions.empty());
  submissions.push(129, operations[0]);
  submissions.push(63, operations[1]);
  submissions.push(129, operations[2]);
  EXPECT_FALSE(submissions.empty());
  EXPECT_EQ(drain(submissions), (Taken{{129, 1}, {63, 2}, {129, 3}}));
  EXPECT_TRUE(submissions.empty());
  EXPECT_TRUE(drain(submissions).empty());
}

TEST(Submissions, TakenOperationMayBeSubmittedAgain) {
  Submissions<Operation> submissions;
  std::array<Operation, 2> operations{Operation{.value = 1}, {.value = 2}};
  for (Operation& operation : operations) submissions.push(0, operation);
  submissions.drain([&](uint32_t, Operation& operation) { submissions.push(5, operation); });
  EXPECT_EQ(drain(submissions), (Taken{{5, 1}, {5, 2}}));
}

TEST(Submissions, NothingIsLostBetweenThreads) {
  constexpr int kOperations = 20'000;
  constexpr uint32_t kThreads = 3;
  constexpr int kAtOnce = 8;
  struct Own : Operation {
    std::atomic<bool> taken{true};
  };
  Submissions<Operation> submissions;
  std::array<std::array<Own, kAtOnce>, kThreads> operations;
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&submissions, &own = operations[i], i] {
      for (int number = 0; number < kOperations; ++number) {
        Own& operation = own[static_cast<size_t>(number % kAtOnce)];
        while (!operation.taken.exchange(false)) std::this_thread::yield();
        operation.value = number;
        submissions.push(i, operation);
      }
    });
  }
  std::vector<int> next(kThreads);
  for (size_t taken = 0; taken < size_t{kThreads} * kOperations;) {
    const size_t count = submissions.drain([&](uint32_t connection, Operation& operation) {
      EXPECT_EQ(operation.value, next[connection]++);
      static_cast<Own&>(operation).taken = true;
    });
    taken += count;
    if (count == 0) std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(submissions.empty());
}

}  // namespace
}  // namespace pacecar::submissions_test
