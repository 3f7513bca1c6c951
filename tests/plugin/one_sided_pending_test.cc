// One-sided operations that are started faster than they end: NCCL drops an operation that is
// refused, and the GPU that waits for it waits for ever.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/plugin/one_sided_member.h"

namespace pacecar::test::one_sided_pending_test {
namespace {

using nccl::NcclResult;
using nccl::SignalPart;

constexpr const char* kTable = "ncclRmaPlugin_v16";

TEST(OneSidedPending, OperationsAreNotRefusedHoweverManyThereAre) {
  expect_processes_pass(2, [](Rank& rank) {
    constexpr size_t kPuts = 200'000;  // without a poll
    constexpr size_t kGets = 70'000;
    Member member(rank, kTable);
    const Shared data(member, kPuts);
    const Shared there(member, kPuts);
    const Shared fetched(member, kGets);
    const Shared signals(member, 64);
    const int peer = 1 - rank.rank();
    fill_pattern(data.bytes(), static_cast<uint64_t>(rank.rank()));
    std::vector<void*> requests;
    for (size_t i = 0; i < kPuts; ++i) {
      requests.push_back(
          member->put(data.at(i), 1, there.at(i), peer, SignalPart{signals.at(0), 1}));
    }
    member->finish(requests);
    member->await(signals.word(0), kPuts);
    EXPECT_FALSE(find_mismatch(there.bytes(), static_cast<uint64_t>(peer)));
    requests.clear();
    for (size_t i = 0; i < kGets; ++i) {
      requests.push_back(member->get(there.at(i), 1, fetched.at(i), peer));
    }
    for (size_t i = 0; i < kGets; ++i) requests.push_back(member->flush(data.window(), peer));
    member->finish(requests);
    EXPECT_FALSE(find_mismatch(fetched.bytes(), static_cast<uint64_t>(rank.rank())));
    rank.barrier();
  });
}

// The rank that puts without a poll is not kept waiting by a dead one.
TEST(OneSidedPendingFailure, KilledPeerEndsThem) {
  const std::vector<int> statuses = run_processes(2, [](Rank& rank) {
    setenv("PACECAR_TIMEOUT", "5s", 0);
    Member member(rank, kTable);
    const Shared signals(member, 64);
    if (rank.rank() == 1) {
      poll_until("some puts", [&] {
        return std::atomic_ref(const_cast<uint64_t&>(signals.word(0))).load() > 1000;
      });
      kill(getpid(), SIGKILL);
    }
    auto result = NcclResult::kSuccess;
    void* request = nullptr;
    std::vector<void*> requests;
    while (result == NcclResult::kSuccess) {
      result = member->table().iputSignal(member->puts(), 0, {}, 0, {}, 1,
                                          SignalPart{signals.at(0), 1}, &request);
      if (request != nullptr) requests.push_back(request);
    }
    EXPECT_EQ(result, NcclResult::kRemoteError);
    EXPECT_EQ(member->result_of(requests.back()), NcclResult::kRemoteError);
  });
  EXPECT_TRUE(WIFSIGNALED(statuses[1]));
  EXPECT_EQ(statuses[0], 0);
}

}  // namespace
}  // namespace pacecar::test::one_sided_pending_test
