#include "transport/engine/submissions.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

namespace pacecar::submissions_test {
namespace {

using Taken = std::vector<std::pair<uint32_t, int>>;

Taken drain(Submissions<int>& submissions) {
  Taken taken;
  const size_t count = submissions.drain(
      [&](uint32_t connection, int operation) { taken.emplace_back(connection, operation); });
  EXPECT_EQ(count, taken.size());
  return taken;
}

TEST(Submissions, OrderIsKeptPerConnection) {
  Submissions<int> submissions(130, 4);
  for (const uint32_t connection : {0U, 63U, 64U, 129U}) submissions.attach(connection);
  EXPECT_TRUE(submissions.empty());
  EXPECT_TRUE(submissions.push(129, 1));
  EXPECT_TRUE(submissions.push(63, 2));
  EXPECT_TRUE(submissions.push(129, 3));
  EXPECT_TRUE(submissions.push(64, 4));
  EXPECT_FALSE(submissions.empty());
  EXPECT_EQ(drain(submissions), (Taken{{63, 2}, {64, 4}, {129, 1}, {129, 3}}));
  EXPECT_TRUE(submissions.empty());
  EXPECT_TRUE(drain(submissions).empty());
}

TEST(Submissions, FullRingRefuses) {
  Submissions<int> submissions(1, 2);
  submissions.attach(0);
  EXPECT_TRUE(submissions.push(0, 1));
  EXPECT_TRUE(submissions.push(0, 2));
  EXPECT_FALSE(submissions.push(0, 3));
  EXPECT_EQ(drain(submissions).size(), 2U);
  EXPECT_TRUE(submissions.push(0, 3));
}

TEST(Submissions, OperationsOfADetachedConnectionAreDropped) {
  Submissions<int> submissions(2, 2);
  submissions.attach(0);
  submissions.attach(1);
  submissions.push(0, 1);
  submissions.push(1, 2);
  submissions.detach(0);
  EXPECT_EQ(drain(submissions), (Taken{{1, 2}}));
  submissions.attach(0);
  EXPECT_TRUE(drain(submissions).empty());
}

TEST(Submissions, NothingIsLostBetweenThreads) {
  constexpr int kOperations = 20'000;
  constexpr uint32_t kThreads = 3;
  Submissions<int> submissions(kThreads, 8);
  for (uint32_t i = 0; i < kThreads; ++i) submissions.attach(i);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&submissions, i] {
      for (int operation = 0; operation < kOperations;) {
        if (submissions.push(i, operation)) {
          ++operation;
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  std::vector<int> next(kThreads);
  size_t taken = 0;
  while (taken < size_t{kThreads} * kOperations) {
    const size_t count = submissions.drain(
        [&](uint32_t connection, int operation) { ASSERT_EQ(operation, next[connection]++); });
    taken += count;
    if (count == 0) std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  // A bell may ring after an earlier drain has taken its operations: this drain finds none.
  EXPECT_EQ(submissions.drain([](uint32_t, int) {}), 0U);
  EXPECT_TRUE(submissions.empty());
}

}  // namespace
}  // namespace pacecar::submissions_test
