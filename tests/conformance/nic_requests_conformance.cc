#include "tests/conformance/nic_conformance.h"

namespace pacecar {

TEST_P(NicRequests, SendsFillReceiveRequestsInOrder) {
  const Ends ends = connect({.paced = false, .receives = 4});
  const Bytes mtu = nic(0).caps().mtu;
  auto& from = memory(0, 5 * mtu, Access::kLocalRead, 5);
  std::array<Memory*, 3> to{};
  const std::array<Bytes, 3> sizes{0, 10, 4 * mtu + 1};
  for (uint64_t i = 0; i < to.size(); ++i) {
    to[i] = &memory(1, 5 * mtu, Access::kRemoteWrite);
    ASSERT_EQ(post_receive(1, ends[1], 100 + i, *to[i], 5 * mtu), 1U);
  }
  for (uint64_t i = 0; i < sizes.size(); ++i) {
    WorkRequest send = write(i, from, from, sizes[i]);
    send.opcode = Opcode::kSend;
    ASSERT_EQ(post(0, ends[0], send), 1U);
  }
  ASSERT_TRUE(wait_for_completions(0, sizes.size()));
  ASSERT_TRUE(wait_for_completions(1, sizes.size()));
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(completions_[0][i].kind, CompletionKind::kSent);
    EXPECT_EQ(completions_[0][i].work_request, i);
    EXPECT_EQ(completions_[1][i].kind, CompletionKind::kReceivedSend);
    EXPECT_EQ(completions_[1][i].work_request, 100 + i);
    EXPECT_EQ(completions_[1][i].bytes, sizes[i]);
    EXPECT_TRUE(std::equal(from.bytes.begin(), from.bytes.begin() + static_cast<int>(sizes[i]),
                           to[i]->bytes.begin()));
  }
}

TEST_P(NicRequests, SendWaitsForAReceiveRequest) {
  const Ends ends = connect({.paced = false, .receives = 1});
  auto& from = memory(0, 64, Access::kLocalRead, 5);
  auto& to = memory(1, 64, Access::kRemoteWrite);
  WorkRequest send = write(1, from, from, 64);
  send.opcode = Opcode::kSend;
  post(0, ends[0], send);
  steps(10);
  EXPECT_TRUE(completions_[0].empty());
  EXPECT_TRUE(completions_[1].empty());
  ASSERT_EQ(post_receive(1, ends[1], 7, to, 64), 1U);
  ASSERT_TRUE(wait_for_completions(0, 1));
  ASSERT_TRUE(wait_for_completions(1, 1));
  EXPECT_EQ(completions_[0][0].status, CompletionStatus::kOk);
  EXPECT_EQ(to.bytes, from.bytes);
}

TEST_P(NicRequests, WriteWithImmediateConsumesAReceiveRequest) {
  const Ends ends = connect({.paced = false, .receives = 2});
  auto& from = memory(0, 64, Access::kLocalRead, 5);
  auto& to = memory(1, 64, Access::kRemoteWrite);
  auto& unused = memory(1, 64, Access::kRemoteWrite, 9);
  const auto before = unused.bytes;
  ASSERT_EQ(post_receive(1, ends[1], 7, unused, 64), 1U);
  post(0, ends[0], write_with_imm(1, from, to, 64, 0x01020304));
  ASSERT_TRUE(wait_for_completions(1, 1));
  EXPECT_EQ(completions_[1][0].kind, CompletionKind::kReceived);
  EXPECT_EQ(completions_[1][0].work_request, 7U);
  EXPECT_EQ(completions_[1][0].immediate, 0x01020304U);
  EXPECT_EQ(to.bytes, from.bytes);
  EXPECT_EQ(unused.bytes, before);
}

TEST_P(NicRequests, ReceiveRequestsAreBoundedAndReusable) {
  const Ends ends = connect({.paced = false, .receives = 2});
  auto& from = memory(0, 64, Access::kLocalRead);
  auto& to = memory(1, 64, Access::kRemoteWrite);
  EXPECT_EQ(post_receive(1, ends[1], 1, to, 64), 1U);
  EXPECT_EQ(post_receive(1, ends[1], 2, to, 64), 1U);
  EXPECT_EQ(post_receive(1, ends[1], 3, to, 64), 0U);
  WorkRequest send = write(1, from, from, 64);
  send.opcode = Opcode::kSend;
  post(0, ends[0], send);
  ASSERT_TRUE(wait_for_completions(1, 1));
  EXPECT_EQ(post_receive(1, ends[1], 3, to, 64), 1U);
}

TEST_P(NicRequests, SendLongerThanItsReceiveRequestIsRefused) {
  const Ends ends = connect({.paced = false, .receives = 2});
  auto& from = memory(0, 64, Access::kLocalRead, 5);
  auto& to = memory(1, 64, Access::kRemoteWrite);
  const auto before = to.bytes;
  ASSERT_EQ(post_receive(1, ends[1], 7, to, 63), 1U);
  WorkRequest send = write(1, from, from, 64);
  send.opcode = Opcode::kSend;
  expect_refused(ends[0], send, CompletionStatus::kRemoteRefused);
  EXPECT_EQ(to.bytes.back(), before.back());
}

}  // namespace pacecar
