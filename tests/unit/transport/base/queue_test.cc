#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "transport/base/fixed_queue.h"
#include "transport/base/spsc_ring.h"

namespace pacecar::queue_test {
namespace {

TEST(SpscRing, PushToFullAndPopFromEmptyAreRefused) {
  SpscRing<int> ring(4);
  int value = -1;
  EXPECT_TRUE(ring.empty());
  EXPECT_FALSE(ring.pop(value));
  EXPECT_EQ(value, -1);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(ring.push(i));
  EXPECT_FALSE(ring.push(4));
  EXPECT_FALSE(ring.empty());
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(ring.pop(value));
    EXPECT_EQ(value, i);
  }
  EXPECT_TRUE(ring.empty());
}

TEST(SpscRing, RingOfOneHoldsOneElement) {
  SpscRing<int> ring(1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(ring.push(i));
    EXPECT_FALSE(ring.push(i));
    int value = -1;
    EXPECT_TRUE(ring.pop(value));
    EXPECT_EQ(value, i);
  }
}

TEST(SpscRingDeathTest, CapacityMustBeAPowerOfTwo) {
  EXPECT_DEATH(SpscRing<int>(0), "capacity");
  EXPECT_DEATH(SpscRing<int>(3), "capacity");
}

// Elements have two words, so that a torn or early read is detected.
TEST(SpscRing, ElementsPassBetweenThreadsInOrder) {
  struct Pair {
    uint64_t number;
    uint64_t complement;
  };
  constexpr uint64_t kElements = 20'000;
  SpscRing<Pair> ring(8);
  std::thread producer([&ring] {
    for (uint64_t i = 0; i < kElements; ++i) {
      while (!ring.push({i, ~i})) std::this_thread::yield();
    }
  });
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < kElements; ++i) {
    Pair pair{};
    while (!ring.pop(pair)) std::this_thread::yield();
    if (pair.number != i || pair.complement != ~i) ++wrong;
  }
  producer.join();
  EXPECT_EQ(wrong, 0U);
  EXPECT_TRUE(ring.empty());
}

TEST(FixedQueue, CapacityNeedNotBeAPowerOfTwo) {
  FixedQueue<int> queue(3);
  EXPECT_EQ(queue.capacity(), 3U);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(queue.push(i));
  EXPECT_TRUE(queue.full());
  EXPECT_FALSE(queue.push(3));
  EXPECT_EQ(queue.size(), 3U);
}

TEST(FixedQueue, QueueWithoutCapacityRefusesElements) {
  FixedQueue<int> queue(0);
  EXPECT_TRUE(queue.full());
  EXPECT_FALSE(queue.push(1));
}

TEST(FixedQueue, RefusedElementStaysWithTheCaller) {
  FixedQueue<std::unique_ptr<int>> queue(1);
  auto first = std::make_unique<int>(1);
  auto second = std::make_unique<int>(2);
  EXPECT_TRUE(queue.push(std::move(first)));
  EXPECT_FALSE(queue.push(std::move(second)));
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(*queue.front(), 1);
}

TEST(FixedQueue, PoppedElementReleasesItsResources) {
  const auto owned = std::make_shared<int>(1);
  FixedQueue<std::shared_ptr<int>> queue(2);
  queue.push(owned);
  queue.pop_front();
  EXPECT_EQ(owned.use_count(), 1);
}

// A queue that has been emptied begins at its first slot again, so that a short one uses little
// cache.
TEST(FixedQueue, EmptiedQueueReusesItsFront) {
  FixedQueue<int> queue(4);
  queue.push(1);
  const int* const front = &queue.front();
  queue.push(2);
  queue.pop_front();
  queue.pop_front();
  queue.push(3);
  EXPECT_EQ(&queue.front(), front);
  EXPECT_EQ(queue.front(), 3);
}

TEST(FixedQueueDeathTest, MisuseAborts) {
  FixedQueue<int> queue(2);
  EXPECT_DEATH(queue.pop_front(), "empty");
  EXPECT_DEATH(queue.front(), "size");
  queue.push(1);
  EXPECT_DEATH(queue[1], "size");
}

}  // namespace
}  // namespace pacecar::queue_test
