// QueuePairState: completions are returned in the order of posting, and a broken queue pair says so
// once, at the end.
#include "transport/nic/paced/queue_pair_state.h"

#include <gtest/gtest.h>

#include <array>

namespace pacecar::queue_pair_state_test {
namespace {

TEST(QueuePairState, CompletesInOrderAndThenReportsThatItIsBroken) {
  QueuePairState qp(5, {.work_requests = 4});
  const std::array<WorkRequest, 3> requests{
      {{.id = 10}, {.id = 11, .signaled = false}, {.id = 12}}};
  ASSERT_EQ(qp.work.post(requests), 3U);
  std::array<uint64_t, 3> numbers;
  for (uint64_t& number : numbers) number = qp.work.start();
  EXPECT_EQ(qp.work.request(numbers[2]).id, 12U);
  Completion completion;
  qp.work.finish(numbers[2], CompletionStatus::kRemoteAccessError);
  EXPECT_FALSE(qp.pop_completion(&completion)) << "the first is not done";
  qp.work.finish(numbers[1], CompletionStatus::kOk);
  qp.work.finish(numbers[0], CompletionStatus::kOk);
  qp.state = QueuePairState::State::kBroken;
  qp.broken_by = CompletionStatus::kRetryExceeded;
  for (const uint64_t id : {10U, 12U}) {  // 11 has succeeded unsignaled
    ASSERT_TRUE(qp.pop_completion(&completion));
    EXPECT_EQ(completion.kind, CompletionKind::kSent);
    EXPECT_EQ(completion.work_request, id);
    EXPECT_EQ(completion.queue_pair, 5U);
  }
  EXPECT_EQ(completion.status, CompletionStatus::kRemoteAccessError);
  ASSERT_TRUE(qp.pop_completion(&completion));
  EXPECT_EQ(completion.kind, CompletionKind::kBroken);
  EXPECT_EQ(completion.status, CompletionStatus::kRetryExceeded);
  EXPECT_FALSE(qp.pop_completion(&completion));
}

}  // namespace
}  // namespace pacecar::queue_pair_state_test
