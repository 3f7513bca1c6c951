// HostLock, the lock of shared memory, also when a process that holds it dies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "transport/ofi/host_lock.h"

namespace pacecar::host_lock_test {
namespace {

HostLock make_lock() {
  auto lock = HostLock::make();
  EXPECT_TRUE(lock) << lock.error().message;
  return std::move(*lock);
}

HostLock join_lock(const HostLock& lock) {
  auto joined = HostLock::join(lock.place());
  EXPECT_TRUE(joined) << joined.error().message;
  return std::move(*joined);
}

TEST(HostLock, LockHasOneHolderAtATime) {
  HostLock own = make_lock();
  HostLock peers = join_lock(own);
  ASSERT_EQ(own.acquire(), 0);
  EXPECT_EQ(peers.acquire(), -EAGAIN);
  own.release();
  ASSERT_EQ(peers.acquire(), 0);
  EXPECT_EQ(own.acquire(), -EAGAIN);
  peers.release();
  EXPECT_EQ(own.acquire(), 0);
  own.release();
}

TEST(HostLock, DeathOfTheHolderIsReportedToAllLaterAcquires) {
  HostLock own = make_lock();
  HostLock peers = join_lock(own);
  const pid_t child = fork();
  if (child == 0) {
    auto lock = HostLock::join(own.place());
    _exit(lock && lock->acquire() == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(peers.acquire(), -EOWNERDEAD);
    EXPECT_EQ(own.acquire(), -EOWNERDEAD);
  }
}

TEST(HostLock, ClosedLockIsNotAcquired) {
  HostLock own = make_lock();
  HostLock peers = join_lock(own);
  own.close();
  EXPECT_EQ(peers.acquire(), -ESHUTDOWN);
  EXPECT_EQ(own.acquire(), -ESHUTDOWN);
}

TEST(HostLock, PlaceWithoutALockIsRefusedWithTheCure) {
  const HostLock own = make_lock();
  const uint32_t here = own.place().process;
  for (const HostLock::Place place :
       {HostLock::Place{here, 0}, HostLock::Place{here, 100'000}, HostLock::Place{0, 0},
        HostLock::Place{4'000'000'000, own.place().fd}}) {
    const auto joined = HostLock::join(place);
    ASSERT_FALSE(joined) << place.process << " " << place.fd;
    EXPECT_EQ(joined.error().code, ErrorCode::kPeer);
    EXPECT_THAT(joined.error().message, testing::HasSubstr("PID namespace"));
  }
}

}  // namespace
}  // namespace pacecar::host_lock_test
