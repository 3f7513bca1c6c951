#include "tests/conformance/nic_conformance.h"

namespace pacecar {

TEST_P(NicRcConformance, SendsOfEverySizeFillTheReceiveRequest) {
  const Ends ends = connect(kUnpaced);
  for (const Bytes size : sizes()) {
    completions_ = {};
    auto& from = memory(0, size + 1, Access::kLocalRead, 7);
    auto& to = guarded(1, size, Access::kRemoteWrite);
    ASSERT_EQ(receive(1, ends[1], 11, to, size), 1U);
    ASSERT_EQ(post(0, ends[0], send(3, from, size)), 1U);
    ASSERT_TRUE(wait_for_completions(0, 1));
    ASSERT_TRUE(wait_for_completions(1, 1));
    EXPECT_EQ(completions_[0][0].kind, CompletionKind::kSent);
    EXPECT_EQ(completions_[0][0].work_request, 3U);
    const Completion& received = completions_[1][0];
    EXPECT_EQ(received.kind, CompletionKind::kReceivedSend);
    EXPECT_EQ(received.work_request, 11U);
    EXPECT_EQ(received.bytes, size);
    EXPECT_EQ(received.queue_pair, ends[1]);
    expect_between_guards(to, from, size);
    nic(0).deregister_memory(from.region);
    nic(1).deregister_memory(to.region);
  }
}

TEST_P(NicRcConformance, ReadsOfEverySizeReturnTheRemoteBytes) {
  const Ends ends = connect(kUnpaced);
  for (const Bytes size : sizes()) {
    completions_ = {};
    auto& from = memory(1, size + 1, Access::kRemoteRead, 7);
    auto& to = guarded(0, size, Access::kRemoteWrite);
    ASSERT_EQ(post(0, ends[0], read(3, to, from, size)), 1U);
    ASSERT_TRUE(wait_for_completions(0, 1)) << size;
    EXPECT_EQ(completions_[0][0].kind, CompletionKind::kSent);
    EXPECT_EQ(completions_[0][0].status, CompletionStatus::kOk);
    expect_between_guards(to, from, size);
    EXPECT_TRUE(completions_[1].empty());
    nic(0).deregister_memory(to.region);
    nic(1).deregister_memory(from.region);
  }
}

TEST_P(NicRcConformance, WritesOfEverySizeStayWithinTheirBounds) {
  const Ends ends = connect(kUnpaced);
  for (const Bytes size : sizes()) {
    completions_ = {};
    auto& from = memory(0, size + 1, Access::kLocalRead, 7);
    auto& to = guarded(1, size, Access::kRemoteWrite);
    WorkRequest work_request = write(3, from, to, size);
    work_request.remote = inside(to);
    ASSERT_EQ(post(0, ends[0], work_request), 1U);
    ASSERT_TRUE(wait_for_completions(0, 1));
    EXPECT_TRUE(
        wait([&] { return std::equal(&from.bytes[0], &from.bytes[size], &to.bytes[kGuard]); }));
    expect_between_guards(to, from, size);
    nic(0).deregister_memory(from.region);
    nic(1).deregister_memory(to.region);
  }
}

TEST_P(NicRcConformance, WriteWithImmediateWaitsForAReceiveRequest) {
  const Ends ends = connect(kUnpaced);
  auto& from = memory(0, 3000, Access::kLocalRead, 7);
  auto& to = guarded(1, 3000, Access::kRemoteWrite);
  auto& unused = guarded(1, 100, Access::kRemoteWrite);
  WorkRequest work_request = write_with_imm(3, from, to, 3000, 0xABCD);
  work_request.remote = inside(to);
  ASSERT_EQ(post(0, ends[0], work_request), 1U);
  steps(200);
  EXPECT_TRUE(completions_[0].empty()) << "there is no receive request yet";
  ASSERT_EQ(receive(1, ends[1], 12, unused, 100), 1U);
  ASSERT_TRUE(wait_for_completions(1, 1));
  EXPECT_EQ(completions_[1][0].kind, CompletionKind::kReceived);
  EXPECT_EQ(completions_[1][0].work_request, 12U);
  EXPECT_EQ(completions_[1][0].immediate, 0xABCDU);
  EXPECT_EQ(completions_[1][0].bytes, 3000U);
  expect_between_guards(to, from, 3000);
  ASSERT_TRUE(wait_for_completions(0, 1));
}

TEST_P(NicRcConformance, SendGivesUpWhenNoReceiveRequestComes) {
  const Ends ends = connect(kUnpaced);
  auto& from = memory(0, 100, Access::kLocalRead, 7);
  auto& to = guarded(1, 100, Access::kRemoteWrite);
  post(0, ends[0], send(1, from, 100));
  receive(1, ends[1], 5, to, 100);
  ASSERT_TRUE(wait_for_completions(0, 1));
  post(0, ends[0], send(2, from, 100));
  expect_broken(0, 1, CompletionStatus::kReceiverNotReady);
}

TEST_P(NicRcConformance, OperationsOfAllKindsCompleteInOrderBothWays) {
  constexpr uint64_t kRounds = 60;
  const Ends ends = connect({.paced = false, .work_requests = 16, .receives = 64});
  const Bytes size = 5 * nic(0).caps().mtu + 7;
  std::array<Memory*, 2> from{};
  std::array<Memory*, 2> to{};
  std::array<Memory*, 2> room{};
  for (size_t side = 0; side < 2; ++side) {
    from[side] = &memory(side, size, Access::kRemoteRead, static_cast<uint8_t>(side + 1));
    to[side] = &guarded(side, size, Access::kRemoteAll);
    room[side] = &guarded(side, size, Access::kRemoteWrite);
  }
  std::array<uint64_t, 2> posted{};
  std::array<uint64_t, 2> receives{};
  const auto work_request = [&](size_t side, uint64_t id) {
    switch (id % 3) {
      case 0: return send(id, *from[side], size);
      case 1: return read(id, *to[side], *from[1 - side], size);
      default:
        WorkRequest write =
            write_with_imm(id, *from[side], *room[1 - side], size, static_cast<uint32_t>(id));
        write.remote = inside(*room[1 - side]);
        return write;
    }
  };
  ASSERT_TRUE(wait([&] {
    for (size_t side = 0; side < 2; ++side) {
      while (receives[side] < 2 * kRounds / 3 &&
             receive(side, ends[side], receives[side], *room[side], size) == 1) {
        ++receives[side];
      }
      while (posted[side] < kRounds &&
             post(side, ends[side], work_request(side, posted[side])) == 1) {
        ++posted[side];
      }
    }
    return completions_[0].size() + completions_[1].size() == 2 * (kRounds + 2 * kRounds / 3);
  }));
  for (size_t side = 0; side < 2; ++side) {
    uint64_t sent = 0;
    uint64_t received = 0;
    for (const Completion& completion : completions_[side]) {
      ASSERT_EQ(completion.status, CompletionStatus::kOk);
      if (completion.kind == CompletionKind::kSent) {
        EXPECT_EQ(completion.work_request, sent++);
      } else {
        EXPECT_EQ(completion.work_request, received++);
        EXPECT_EQ(completion.bytes, size);
      }
    }
    expect_between_guards(*to[side], *from[1 - side], size);
    expect_between_guards(*room[side], *from[1 - side], size);
  }
}

}  // namespace pacecar
