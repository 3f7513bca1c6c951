#include "transport/nic/paced/work_queue.h"

#include <gtest/gtest.h>

#include <vector>

namespace pacecar::work_queue_test {
namespace {

constexpr uint32_t kKey = 7;

size_t post(WorkQueue& queue, uint64_t first, size_t count, uint32_t key = kKey) {
  std::vector<WorkRequest> requests;
  for (size_t i = 0; i < count; ++i) requests.push_back({.id = first + i, .local_key = key});
  return queue.post(requests);
}

// The ids and statuses of the requests that complete now.
std::vector<std::pair<uint64_t, CompletionStatus>> completed(WorkQueue& queue) {
  std::vector<std::pair<uint64_t, CompletionStatus>> all;
  WorkRequest request;
  CompletionStatus status{};
  while (queue.pop_completed(&request, &status)) all.emplace_back(request.id, status);
  return all;
}

using Completed = std::vector<std::pair<uint64_t, CompletionStatus>>;
constexpr CompletionStatus kOk = CompletionStatus::kOk;
constexpr CompletionStatus kGone = CompletionStatus::kMemoryGone;

TEST(WorkQueue, AcceptsRequestsUpToItsSize) {
  WorkQueue queue(4);
  EXPECT_EQ(post(queue, 0, 6), 4U);
  EXPECT_EQ(post(queue, 4, 1), 0U);
  queue.finish(queue.start(), kOk);
  EXPECT_EQ(post(queue, 4, 1), 0U) << "its completion has not been taken";
  EXPECT_EQ(completed(queue), (Completed{{0, kOk}}));
  EXPECT_EQ(post(queue, 4, 2), 1U);
}

TEST(WorkQueue, CompletesInTheOrderOfPosting) {
  WorkQueue queue(8);
  post(queue, 10, 3);
  const uint64_t first = queue.start();
  const uint64_t second = queue.start();
  EXPECT_EQ(queue.waiting()->id, 12U);
  queue.finish(second, CompletionStatus::kRemoteAccessError);
  EXPECT_EQ(completed(queue), Completed{});
  queue.finish(first, kOk);
  EXPECT_EQ(completed(queue), (Completed{{10, kOk}, {11, CompletionStatus::kRemoteAccessError}}));
  queue.finish(queue.start(), kOk);
  EXPECT_EQ(queue.waiting(), nullptr);
  EXPECT_EQ(completed(queue), (Completed{{12, kOk}}));
}

TEST(WorkQueue, RevokedMemoryFailsOnlyItsWaitingRequests) {
  WorkQueue queue(8);
  post(queue, 0, 2);
  post(queue, 2, 1, kKey + 1);
  post(queue, 3, 1);
  const uint64_t first = queue.start();
  queue.revoke(kKey);
  EXPECT_TRUE(queue.in_use(kKey));
  EXPECT_FALSE(queue.in_use(kKey + 1));
  ASSERT_NE(queue.waiting(), nullptr);
  EXPECT_EQ(queue.waiting()->id, 2U);
  const uint64_t other = queue.start();
  EXPECT_EQ(queue.waiting(), nullptr) << "the last one is revoked";
  queue.finish(first, kOk);
  EXPECT_FALSE(queue.in_use(kKey));
  EXPECT_EQ(completed(queue), (Completed{{0, kOk}, {1, kGone}}));
  queue.finish(other, kOk);
  EXPECT_EQ(completed(queue), (Completed{{2, kOk}, {3, kGone}}));
}

TEST(WorkQueue, RequestsBehindRevokedOnesAreStarted) {
  WorkQueue queue(8);
  post(queue, 0, 2);
  queue.revoke(kKey);
  EXPECT_EQ(queue.waiting(), nullptr);
  post(queue, 2, 1, kKey + 1);
  ASSERT_NE(queue.waiting(), nullptr);
  EXPECT_EQ(queue.waiting()->id, 2U);
  EXPECT_EQ(completed(queue), (Completed{{0, kGone}, {1, kGone}}));
  queue.finish(queue.start(), kOk);
  EXPECT_EQ(completed(queue), (Completed{{2, kOk}}));
}

TEST(WorkQueue, AbandonedRequestNeverCompletesAndUsesNoMemory) {
  WorkQueue queue(8);
  post(queue, 0, 2);
  queue.abandon(queue.start());
  queue.finish(queue.start(), kOk);
  EXPECT_FALSE(queue.in_use(kKey));
  EXPECT_EQ(completed(queue), Completed{});
}

}  // namespace
}  // namespace pacecar::work_queue_test
