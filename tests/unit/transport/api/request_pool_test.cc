// RequestPool: the number of requests of a connection, and their reuse.
#include <gtest/gtest.h>

#include <set>

#include "transport/api/connections.h"

namespace pacecar::request_pool_test {
namespace {

TEST(RequestPool, PoolHasItsNumberOfRequests) {
  constexpr uint32_t kSize = 40;
  RequestPool<MessageSend> pool(kSize);
  for (int round = 0; round < 2; ++round) {
    std::set<MessageSend*> taken;
    while (MessageSend* const request = pool.take()) ASSERT_TRUE(taken.insert(request).second);
    EXPECT_EQ(taken.size(), kSize);
    EXPECT_EQ(pool.taken(), kSize);
    for (MessageSend* request : taken) pool.give_back(request);
    EXPECT_EQ(pool.taken(), 0U);
  }
}

TEST(RequestPool, ReturnedRequestIsTakenNext) {
  RequestPool<MessageSend> pool(64);
  MessageSend* const first = pool.take();
  for (int i = 0; i < 63; ++i) EXPECT_NE(pool.take(), nullptr);
  EXPECT_EQ(pool.take(), nullptr);
  pool.give_back(first);
  EXPECT_EQ(pool.take(), first);
}

}  // namespace
}  // namespace pacecar::request_pool_test
