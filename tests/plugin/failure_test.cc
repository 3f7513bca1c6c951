// Aborts and dead peers.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/plugin/plugin_test.h"

namespace pacecar::test::failure_test {
namespace {

using nccl::LogSeverity;
using nccl::NcclResult;

constexpr size_t kBytes = 1U << 20;
constexpr size_t kRequests = 16;

// The environment may set a longer timeout, for a machine that is too slow for 3 s.
std::unique_ptr<FakeNcclHost> start_impatient_host() {
  setenv("PACECAR_TIMEOUT", "3s", 0);
  return start_host();
}

// A closing peer sends a close word, so no test waits for the timeout; a short one could expire too
// early on a busy machine.
std::unique_ptr<FakeNcclHost> start_patient_host() {
  setenv("PACECAR_TIMEOUT", "60s", 1);
  return start_host();
}

NcclResult try_post(const FakeNcclHost& host, const Rank& rank, void* comm, const Buffer& buffer,
                    size_t part, void** request) {
  const Part posted = buffer.part(part * kBytes, kBytes);
  return rank.rank() == 0 ? host.post_receive(comm, std::span(&posted, 1), request)
                          : host.post_send(comm, posted, request);
}

// Streams until a request fails or `enough` requests are done; returns the last result.
NcclResult stream(const FakeNcclHost& host, const Rank& rank, void* comm, const Buffer& buffer,
                  size_t enough) {
  std::vector<void*> requests(kRequests, nullptr);
  NcclResult result = NcclResult::kSuccess;
  size_t completed = 0;
  poll_until("the stream's end", [&] {
    for (size_t i = 0; i < kRequests && result == NcclResult::kSuccess; ++i) {
      const size_t next = (completed + i) % kRequests;
      if (requests[next] != nullptr) continue;
      result = try_post(host, rank, comm, buffer, next, &requests[next]);
    }
    void*& oldest = requests[completed % kRequests];
    int done = 0;
    int size = 0;
    if (result == NcclResult::kSuccess && oldest != nullptr) {
      result = host.net().test(oldest, &done, &size);
      if (result != NcclResult::kSuccess) {
        EXPECT_EQ(host.net().test(oldest, &done, &size), result) << "as NCCL 2.22 does";
      }
    }
    if (done == 1) {
      oldest = nullptr;
      ++completed;
    }
    return result != NcclResult::kSuccess || completed == enough;
  });
  return result;
}

// One rank aborts while requests are in flight: its buffers are deregistered and made inaccessible
// before it closes.
void abort_while_streaming(int aborting) {
  expect_processes_pass(2, [&](Rank& rank) {
    const auto host = start_patient_host();
    void* const comm = connect_ranks(*host, rank);
    Buffer buffer(*host, comm, kRequests * kBytes);
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
    Buffer buffer(*host, comm, kRequests * kBytes);
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
    Buffer source(host, pair.send, kBytes);
    Buffer target(host, pair.receive, kBytes);
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

void peer_is_killed(int victim) {
  const std::vector<int> statuses = run_processes(2, [&](Rank& rank) {
    const auto host = start_impatient_host();
    void* const comm = connect_ranks(*host, rank);
    Buffer buffer(*host, comm, kRequests * kBytes);
    if (rank.rank() == victim) {
      stream(*host, rank, comm, buffer, 20);
      kill(getpid(), SIGKILL);
    }
    EXPECT_EQ(stream(*host, rank, comm, buffer, SIZE_MAX), NcclResult::kRemoteError);
    EXPECT_TRUE(was_logged(LogSeverity::kWarn, nic_address()));
    buffer.deregister();
    close_rank(*host, rank, comm);
  });
  const auto killed = static_cast<size_t>(victim);
  EXPECT_TRUE(WIFSIGNALED(statuses[killed]) && WTERMSIG(statuses[killed]) == SIGKILL);
  EXPECT_EQ(statuses[1 - killed], 0);
}

TEST(Failure, AKilledReceiverFailsTheSend) { peer_is_killed(0); }

TEST(Failure, AKilledSenderFailsTheReceive) { peer_is_killed(1); }

}  // namespace
}  // namespace pacecar::test::failure_test
