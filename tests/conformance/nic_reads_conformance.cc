#include "tests/conformance/nic_conformance.h"

namespace pacecar {

TEST_P(NicReads, ReadsReturnTheRemoteBytes) {
  const Ends ends = connect({.paced = false});
  const Bytes mtu = nic(0).caps().mtu;
  constexpr uint64_t kReads = 40;
  auto& to = memory(0, 3 * mtu, Access::kRemoteAll);
  auto& from = memory(1, 3 * mtu, Access::kRemoteRead, 5);
  for (uint64_t i = 0; i < kReads; ++i) {  // more than may be in flight at once
    WorkRequest read = write(i, to, from, i == 0 ? 0 : 3 * mtu - i);
    read.opcode = Opcode::kRead;
    ASSERT_EQ(post(0, ends[0], read), 1U);
  }
  ASSERT_TRUE(wait_for_completions(0, kReads));
  for (uint64_t i = 0; i < kReads; ++i) {
    EXPECT_EQ(completions_[0][i].kind, CompletionKind::kSent);
    EXPECT_EQ(completions_[0][i].work_request, i);
    EXPECT_EQ(completions_[0][i].status, CompletionStatus::kOk);
  }
  EXPECT_TRUE(std::equal(from.bytes.begin(), from.bytes.end() - 1, to.bytes.begin()));
  EXPECT_TRUE(completions_[1].empty());
}

TEST_P(NicReads, RefusedReadWritesNothing) {
  auto& to = memory(0, 64, Access::kRemoteAll);
  auto& locked = memory(1, 64, Access::kLocalRead, 5);
  auto& writable = memory(1, 64, Access::kRemoteWrite, 6);
  auto& readable = memory(1, 64, Access::kRemoteRead, 7);
  const auto before = to.bytes;
  WorkRequest beyond = write(3, to, readable, 64);
  ++beyond.remote;
  for (WorkRequest read : {write(1, to, locked, 64), write(2, to, writable, 64), beyond}) {
    SCOPED_TRACE(read.id);
    read.opcode = Opcode::kRead;
    expect_refused(connect({.paced = false})[0], read, CompletionStatus::kRemoteAccessError);
  }
  EXPECT_EQ(to.bytes, before);
}

}  // namespace pacecar
