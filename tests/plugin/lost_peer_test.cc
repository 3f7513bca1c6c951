// A peer that has the handle and is lost before the connection is made: the other end fails.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "tests/plugin/plugin_test.h"

namespace pacecar::test::lost_peer_test {
namespace {

using nccl::NcclResult;

enum class Fate { kExits, kIsKilled, kIsStopped };
// How far the connection is then. Rank 0 accepts, and rank 1 connects.
enum class Stage { kListens, kIsCalled, kHasProof };

void meet(Fate fate) {
  if (fate == Fate::kIsKilled) raise(SIGKILL);
  if (fate == Fate::kIsStopped) raise(SIGSTOP);
}

// Until the call of this rank fails.
NcclResult await_failure(const FakeNcclHost& host, const Rank& rank, const Listening& listening,
                         HandleBytes& handle) {
  NcclResult result = NcclResult::kSuccess;
  poll_until("the error", [&] {
    void* comm = nullptr;
    result = rank.rank() == 0
                 ? host.net().accept(listening.comm, &comm, nullptr)
                 : host.net().connect(host.context(), 0, handle.data(), &comm, nullptr);
    EXPECT_EQ(comm, nullptr);
    return result != NcclResult::kSuccess || comm != nullptr;
  });
  return result;
}

void go_to(Stage stage, const FakeNcclHost& host, Rank& rank, const Listening& listening,
           HandleBytes& handle) {
  const auto call_of = [&](int caller) {
    if (rank.rank() == caller) {
      EXPECT_EQ(caller == 0 ? host.try_accept(listening.comm) : host.try_connect(handle), nullptr);
    }
    rank.barrier();
  };
  if (stage == Stage::kListens) return;
  call_of(1);  // TCP connects
  if (stage == Stage::kIsCalled) return;
  call_of(0);  // the challenge
  call_of(1);  // the proof, with the offer
}

void expect_the_other_fails(int victim, Fate fate, Stage stage) {
  SCOPED_TRACE(testing::Message() << "rank " << victim << ", fate " << static_cast<int>(fate)
                                  << ", stage " << static_cast<int>(stage));
  const std::vector<int> statuses = run_processes(2, [&](Rank& rank) {
    // 60 times this without a word of the peer; with its proof, the barriers must be in time.
    setenv("PACECAR_CONNECT_TIMEOUT", stage == Stage::kHasProof ? "2s" : "100ms", 1);
    const auto host = start_host();
    Listening listening;
    HandleBytes handle{};
    if (rank.rank() == 0) {
      listening = host->listen();
      rank.give(1, listening.handle);
    } else {
      handle = rank.take(0);
    }
    go_to(stage, *host, rank, listening, handle);
    if (rank.rank() == victim) {
      HandleBytes pid{};
      const pid_t own = getpid();
      std::memcpy(pid.data(), &own, sizeof own);
      rank.give(1 - victim, pid);
      return meet(fate);
    }
    const HandleBytes given = rank.take(victim);
    pid_t pid = 0;
    std::memcpy(&pid, given.data(), sizeof pid);
    EXPECT_EQ(await_failure(*host, rank, listening, handle), NcclResult::kRemoteError);
    EXPECT_TRUE(was_logged(nccl::LogSeverity::kWarn, nic_address()));
    if (rank.rank() == 0) host->close_listen(listening.comm);
    if (fate == Fate::kIsStopped) kill(pid, SIGKILL);
  });
  EXPECT_EQ(statuses[static_cast<size_t>(1 - victim)], 0);
  EXPECT_EQ(WIFSIGNALED(statuses[static_cast<size_t>(victim)]), fate != Fate::kExits);
}

void expect_fails_at_each_stage(int victim, Fate fate) {
  for (const Stage stage : {Stage::kListens, Stage::kIsCalled, Stage::kHasProof}) {
    expect_the_other_fails(victim, fate, stage);
  }
}

TEST(LostPeer, AcceptFailsIfTheCallerExits) { expect_fails_at_each_stage(1, Fate::kExits); }
TEST(LostPeer, AcceptFailsIfTheCallerIsKilled) { expect_fails_at_each_stage(1, Fate::kIsKilled); }
TEST(LostPeer, AcceptFailsIfTheCallerIsStopped) { expect_fails_at_each_stage(1, Fate::kIsStopped); }
TEST(LostPeer, ConnectFailsIfTheListenerExits) { expect_fails_at_each_stage(0, Fate::kExits); }
TEST(LostPeer, ConnectFailsIfTheListenerIsKilled) {
  expect_fails_at_each_stage(0, Fate::kIsKilled);
}
TEST(LostPeer, ConnectFailsIfTheListenerIsStopped) {
  expect_fails_at_each_stage(0, Fate::kIsStopped);
}

}  // namespace
}  // namespace pacecar::test::lost_peer_test
