// Aborts, and memory that is taken away.
#include "tests/plugin/stream.h"

namespace pacecar::test::failure_test {
namespace {

using nccl::LogSeverity;
using nccl::NcclResult;

// A closing peer sends a close word, so no test waits for the timeout; a short one could expire too
// early on a busy machine.
std::unique_ptr<FakeNcclHost> start_patient_host() {
  setenv("PACECAR_TIMEOUT", "60s", 1);
  return start_host();
}

// One rank aborts while requests are in flight: its buffers are deregistered and made inaccessible
// before it closes.
void abort_while_streaming(int aborting) {
  expect_processes_pass(2, [&](Rank& rank) {
    const auto host = start_patient_host();
    void* const comm = connect_ranks(*host, rank);
    Buffer buffer(*host, comm, kStreamRequests * kStreamBytes);
    if (rank.rank() == aborting) {
      EXPECT_EQ(stream(*host, rank, comm, buffer, 20), NcclResult::kSuccess);
      buffer.deregister();
      buffer.forbid_access();
      close_rank(*host, rank, comm);
    } else {
      EXPECT_EQ(stream(*host, rank, comm, buffer, SIZE_MAX), NcclResult::kRemoteError);
      EXPECT_TRUE(was_logged(LogSeverity::kWarn, nic_address()));
      buffer.deregister();
      close_rank(*host, rank, comm);
    }
    // Both processes live until both have closed, so that a late access to freed memory is noticed.
    rank.barrier();
  });
}

TEST(Failure, AnAbortedReceiverIsNotWrittenAnyMore) { abort_while_streaming(0); }

TEST(Failure, AnAbortedSenderIsNotReadAnyMore) { abort_while_streaming(1); }

// A mistake of the program: it takes away memory that is being sent. Where packets are copied, or
// their payload is summed, this ends the process, as any access does.
TEST(Failure, ASourceThatCannotBeReadFailsBothEnds) {
  const bool reads =
      setting("PACECAR_GPU", "") == "staged" || !setting("PACECAR_FAULT", "").empty();
  if (!nic_names().starts_with("soft:udp:") || reads)
    GTEST_SKIP() << "packets are copied or summed";
  expect_processes_pass(2, [](Rank& rank) {
    const auto host = start_patient_host();
    void* const comm = connect_ranks(*host, rank);
    Buffer buffer(*host, comm, kStreamRequests * kStreamBytes);
    if (rank.rank() == 1) {
      EXPECT_EQ(stream(*host, rank, comm, buffer, 20), NcclResult::kSuccess);
      buffer.forbid_access();
      EXPECT_EQ(stream(*host, rank, comm, buffer, SIZE_MAX), NcclResult::kInvalidUsage);
      EXPECT_TRUE(was_logged(LogSeverity::kWarn, "unmapped"));
    } else {
      EXPECT_EQ(stream(*host, rank, comm, buffer, SIZE_MAX), NcclResult::kRemoteError);
      EXPECT_TRUE(was_logged(LogSeverity::kWarn, "look for the first error there"));
    }
    buffer.deregister();
    close_rank(*host, rank, comm);
    rank.barrier();
  });
}

TEST(Failure, CloseDoesNotWaitForUnmatchedRequests) {
  with_connection([](const FakeNcclHost& host, const Ends& pair) {
    Buffer source(host, pair.send, kStreamBytes);
    Buffer target(host, pair.receive, kStreamBytes);
    host.send(pair.send, source.whole(1));
    host.receive(pair.receive, target.whole(2));  // never matched
    source.deregister();
    source.forbid_access();
    target.deregister();
    target.forbid_access();
  });
}

TEST(Failure, AFinalizeBeforeCloseIsAllowed) {
  expect_processes_pass(1, [](Rank&) {
    const auto host = start_host();
    const Ends pair = host->connect_self();
    host->finalize();
    host->close(pair);
    EXPECT_EQ(host->init(), NcclResult::kSuccess);
  });
}

}  // namespace
}  // namespace pacecar::test::failure_test
