// The lock of a verbs device's NIC: which threads count as callers.
#include "net_plugin/verbs/turn_lock.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>

namespace pacecar::ibverbs::turn_lock_test {
namespace {

TEST(VerbsTurnLock, HolderWithPriorityIsACaller) {
  TurnLock lock;
  EXPECT_FALSE(lock.called());
  {
    const std::lock_guard held(lock);
    EXPECT_TRUE(lock.called());
    EXPECT_FALSE(lock.try_lock());
  }
  EXPECT_FALSE(lock.called());
}

TEST(VerbsTurnLock, KeeperIsNoCaller) {
  TurnLock lock;
  ASSERT_TRUE(lock.try_lock());
  EXPECT_FALSE(lock.called());
  lock.unlock();
  EXPECT_FALSE(lock.called());
  const std::lock_guard held(lock);
  EXPECT_TRUE(lock.called()) << "an unlock by the keeper is not a caller's";
}

TEST(VerbsTurnLock, WaitingThreadIsACaller) {
  TurnLock lock;
  ASSERT_TRUE(lock.try_lock());
  bool called = false;
  std::thread caller([&] {
    const std::lock_guard held(lock);
    called = true;
  });
  while (!lock.called()) std::this_thread::yield();
  lock.unlock();
  caller.join();
  EXPECT_TRUE(called);
  EXPECT_FALSE(lock.called());
}

}  // namespace
}  // namespace pacecar::ibverbs::turn_lock_test
