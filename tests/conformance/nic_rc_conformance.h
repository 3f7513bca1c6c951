// What every Nic with sends, reads and receive requests (caps().sends and caps().reads) must do,
// beside tests/conformance/nic_conformance.h. To add a NIC:
//
//   INSTANTIATE_TEST_SUITE_P(MyNic, NicRcConformance,
//                            testing::Values(NicCase{"plain", make_my_world}), nic_case_name);
#pragma once

#include "tests/conformance/nic_conformance.h"

namespace pacecar {

class NicRcConformance : public NicConformance {
 protected:
  static constexpr QueuePairConfig kUnpaced{.paced = false, .receives = 8};
  static constexpr size_t kGuard = 64;
  static constexpr uint8_t kGuardByte = 0xA5;

  void SetUp() override {
    NicConformance::SetUp();
    for (size_t side = 0; side < 2; ++side) {
      ASSERT_TRUE(nic(side).caps().sends && nic(side).caps().reads);
    }
  }
  // Small sizes, and sizes around multiples of the MTU.
  std::vector<Bytes> sizes() {
    const Bytes mtu = std::min(nic(0).caps().mtu, nic(1).caps().mtu);
    return {0, 1, 2, 3, 4, 5, mtu - 1, mtu, mtu + 1, 2 * mtu, 20 * mtu + 3, 300 * mtu + 1};
  }
  // Memory of `size` bytes between guards.
  Memory& guarded(size_t side, Bytes size, Access access) {
    Memory& memory = this->memory(side, size + 2 * kGuard, access);
    std::ranges::fill(memory.bytes, kGuardByte);
    return memory;
  }
  static uint64_t inside(const Memory& memory) { return memory.region.remote_address + kGuard; }
  static void expect_between_guards(const Memory& to, const Memory& from, Bytes size) {
    for (size_t i = 0; i < kGuard; ++i) {
      ASSERT_EQ(to.bytes[i], kGuardByte) << size;
      ASSERT_EQ(to.bytes[kGuard + size + i], kGuardByte) << size;
    }
    ASSERT_TRUE(std::equal(from.bytes.begin(), from.bytes.begin() + static_cast<long>(size),
                           to.bytes.begin() + kGuard))
        << size;
  }
  static WorkRequest send(uint64_t id, const Memory& from, Bytes length) {
    return {.id = id,
            .local = from.region.address,
            .length = length,
            .local_key = from.region.key,
            .opcode = Opcode::kSend};
  }
  static WorkRequest read(uint64_t id, const Memory& to, const Memory& from, Bytes length) {
    return {.id = id,
            .local = to.region.address + kGuard,
            .remote = from.region.remote_address,
            .length = length,
            .local_key = to.region.key,
            .remote_key = from.region.key,
            .opcode = Opcode::kRead};
  }
  size_t receive(size_t side, QueuePairId id, uint64_t request, const Memory& to, Bytes length) {
    const ReceiveRequest receive{.id = request,
                                 .local = to.region.address + kGuard,
                                 .length = length,
                                 .local_key = to.region.key};
    return nic(side).post_receives(id, {&receive, 1});
  }
  void expect_broken(size_t side, size_t index, CompletionStatus status) {
    ASSERT_TRUE(wait_for_completions(side, index + 1));
    EXPECT_EQ(completions_[side][index].kind, CompletionKind::kBroken);
    EXPECT_EQ(completions_[side][index].status, status);
  }
};

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
  expect_broken(0, 1, world_.not_ready);
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
      case 0:
        return send(id, *from[side], size);
      case 1:
        return read(id, *to[side], *from[1 - side], size);
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
