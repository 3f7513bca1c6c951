// One-sided operations through every version of the GIN and RMA tables.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <numeric>

#include "tests/plugin/one_sided_member.h"

namespace pacecar::test::one_sided_test {
namespace {

using nccl::NcclResult;
using nccl::Pages;
using nccl::SignalPart;
using nccl::WindowPlace;

constexpr const char* kNewest = "ncclRmaPlugin_v16";
constexpr std::array<size_t, 9> kSizes = {0, 1, 7, 8, 100, 4096, 5000, 65537, 1 << 20};
constexpr size_t kSlot = 2 << 20;  // room for one rank's puts in each rank's window

uint64_t seed_of(int from, int to, size_t part) {
  return static_cast<uint64_t>(from) << 40 | static_cast<uint64_t>(to) << 20 | part;
}
size_t offset_of(size_t part) {
  return std::accumulate(kSizes.begin(), kSizes.begin() + static_cast<int64_t>(part), size_t{0},
                         [](size_t sum, size_t size) { return sum + (size + 63) / 64 * 64; });
}

// Puts every size to each rank, this one included, all at once; then a signal each. Waits until
// the signals of all ranks have arrived.
void put_to_all(Member& member, const Shared& source, const Shared& target, const Shared& signals) {
  const int own = member.rank().rank();
  const int ranks = member.rank().size();
  std::vector<void*> requests;
  for (int i = 0; i < ranks; ++i) {
    const int peer = (own + i) % ranks;
    const size_t from = static_cast<size_t>(peer) * kSlot;
    const size_t to = static_cast<size_t>(own) * kSlot;
    for (size_t part = 0; part < kSizes.size(); ++part) {
      const auto bytes = source.bytes().subspan(from + offset_of(part), kSizes[part]);
      fill_pattern(bytes, seed_of(own, peer, part));
      const bool last = part + 1 == kSizes.size();
      const WindowPlace place = source.at(from + offset_of(part));
      const WindowPlace there = target.at(to + offset_of(part));
      requests.push_back(
          last ? member->put(place, kSizes[part], there, peer, SignalPart{signals.at(8), 3})
               : member->put(place, kSizes[part], there, peer));
    }
    requests.push_back(
        member->put({}, 0, {}, peer, SignalPart{signals.at(16), 77, nccl::kSignalIncrement}));
  }
  member->finish(requests);
  member->await(signals.word(1), 3 * static_cast<uint64_t>(ranks));
  member->await(signals.word(2), static_cast<uint64_t>(ranks));
}

void expect_all_there(const Member& member, const Shared& target) {
  const int own = member.rank().rank();
  for (int peer = 0; peer < member.rank().size(); ++peer) {
    for (size_t part = 0; part < kSizes.size(); ++part) {
      const auto bytes =
          target.bytes().subspan(static_cast<size_t>(peer) * kSlot + offset_of(part), kSizes[part]);
      EXPECT_FALSE(find_mismatch(bytes, seed_of(peer, own, part)))
          << "from rank " << peer << ", " << kSizes[part] << " bytes";
    }
  }
}

// Gets back from each rank what this rank has put there.
void get_from_all(const Member& member, const Shared& fetched, const Shared& target) {
  const int own = member.rank().rank();
  std::vector<void*> requests;
  for (int peer = 0; peer < member.rank().size(); ++peer) {
    for (size_t part = 0; part < kSizes.size(); ++part) {
      const size_t offset = offset_of(part);
      requests.push_back(member->get(target.at(static_cast<size_t>(own) * kSlot + offset),
                                     kSizes[part],
                                     fetched.at(static_cast<size_t>(peer) * kSlot + offset), peer));
    }
    requests.push_back(member->flush(fetched.window(), peer));
  }
  member->finish(requests);
  for (int peer = 0; peer < member.rank().size(); ++peer) {
    for (size_t part = 0; part < kSizes.size(); ++part) {
      const auto bytes = fetched.bytes().subspan(
          static_cast<size_t>(peer) * kSlot + offset_of(part), kSizes[part]);
      EXPECT_FALSE(find_mismatch(bytes, seed_of(own, peer, part))) << kSizes[part] << " bytes back";
    }
  }
}

struct Life {
  const char* symbol;
  int ranks;
};
class OneSided : public testing::TestWithParam<Life> {};

TEST_P(OneSided, EachRankPutsToAndGetsFromAllRanks) {
  expect_processes_pass(GetParam().ranks, [](Rank& rank) {
    Member member(rank, GetParam().symbol);
    EXPECT_EQ(member->table().device_type(0), nccl::kDeviceTypeGinProxy);
    EXPECT_STREQ(member->table().name(), "Pacecar");
    EXPECT_FALSE(member->table().any_signal_flushes_all_puts(member->collective()));
    const size_t size = kSlot * static_cast<size_t>(rank.size());
    const Shared source(member, size);
    const Shared target(member, size);
    const Shared signals(member, 64);
    put_to_all(member, source, target, signals);
    expect_all_there(member, target);
    rank.barrier();
    if (member->table().gets()) {
      const Shared fetched(member, size);
      get_from_all(member, fetched, target);
      rank.barrier();
    }
    EXPECT_FALSE(member->has_error());
    rank.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Versions, OneSided,
                         testing::Values(Life{"ncclGinPlugin_v11", 2}, Life{"ncclGinPlugin_v12", 4},
                                         Life{"ncclGinPlugin_v13", 1}, Life{"ncclRmaPlugin_v13", 4},
                                         Life{"ncclRmaPlugin_v14", 3}, Life{"ncclRmaPlugin_v15", 2},
                                         Life{kNewest, 8}));

// The data of a put must be visible before its signal, whatever the network does.
void put_in_order() {
  constexpr size_t kRounds = 400;
  expect_processes_pass(2, [](Rank& rank) {
    Member member(rank, kNewest);
    constexpr size_t kPart = 5000;
    const Shared data(member, kRounds * kPart);
    const Shared signals(member, 64);
    if (rank.rank() == 0) {
      std::vector<void*> requests;
      for (size_t round = 0; round < kRounds; ++round) {
        fill_pattern(data.bytes().subspan(round * kPart, kPart), round);
        const WindowPlace part = data.at(round * kPart);
        // Two puts in different contexts; the second has the signal.
        requests.push_back(member->put(part, kPart - 8, part, 1));
        const WindowPlace rest = data.at(round * kPart + kPart - 8);
        requests.push_back(member->put(rest, 8, rest, 1, SignalPart{signals.at(0), 1}, 1));
      }
      member->finish(requests);
    }
    uint64_t seen = 0;
    if (rank.rank() == 1) {
      poll_until("the last signal", [&] {
        member->table().progress(member->puts());
        const uint64_t now = std::atomic_ref(const_cast<uint64_t&>(signals.word(0))).load();
        for (; seen < now; ++seen) {
          EXPECT_FALSE(find_mismatch(data.bytes().subspan(seen * kPart, kPart), seen));
        }
        return seen == kRounds;
      });
    }
    rank.barrier();
  });
}

TEST(OneSidedOrder, SignalArrivesAfterEarlierPuts) { put_in_order(); }

TEST(OneSidedOrder, SignalArrivesAfterEarlierPutsOverABadNetwork) {
  if (!nic_names().starts_with("soft:")) GTEST_SKIP() << "faults are made by software NICs";
  setenv("PACECAR_FAULT", "loss=0.01,duplicate=0.01,reorder=0.02,reorder_by=2ms", 1);
  put_in_order();
  unsetenv("PACECAR_FAULT");
}

TEST(OneSidedOrder, PutsBeyondTheQueueDepthComplete) {
  expect_processes_pass(2, [](Rank& rank) {
    Member member(rank, kNewest);
    constexpr size_t kPuts = 2000;  // in a row
    const Shared data(member, kPuts * 8);
    const Shared signals(member, 64);
    if (rank.rank() == 0) {
      fill_pattern(data.bytes(), 2);
      std::vector<void*> requests;
      for (size_t i = 0; i < kPuts; ++i) {
        requests.push_back(member->put(data.at(8 * i), 8, data.at(8 * i), 1));
      }
      requests.push_back(member->put({}, 0, {}, 1, SignalPart{signals.at(0), 5}));
      member->finish(requests);
    } else {
      member->await(signals.word(0), 5);
      EXPECT_FALSE(find_mismatch(data.bytes(), 2));
    }
    rank.barrier();
  });
}

TEST(OneSidedGet, IdleRankAnswersGets) {
  expect_processes_pass(2, [](Rank& rank) {
    Member member(rank, kNewest);
    const Shared data(member, 1 << 20);
    if (rank.rank() == 0) {
      fill_pattern(data.bytes(), 3);
      member->table().progress(member->puts());  // a sanitizer knows its lock, but not the barrier
    }
    rank.barrier();
    if (rank.rank() == 1) {
      // More gets than may be in flight at once.
      std::vector<void*> requests;
      for (size_t i = 0; i < 200; ++i) {
        const size_t size = data.bytes().size() / 200;
        requests.push_back(member->get(data.at(i * size), size, data.at(i * size), 0));
      }
      member->finish(requests);
      EXPECT_FALSE(find_mismatch(data.bytes().first(data.bytes().size() / 200 * 200), 3));
    }
    rank.barrier();
  });
}

TEST(OneSidedWindow, MemorySharedTwiceIsOneWindow) {
  expect_processes_pass(2, [](Rank& rank) {
    Member member(rank, kNewest);
    const Shared first(member, 4096);
    void* const again = member->share(first.bytes());
    EXPECT_EQ(again, first.window());
    void* const part = member->share(first.bytes().first(100));
    EXPECT_EQ(part, first.window());
    // Memory that is the same on one rank only makes a new window.
    const Pages own(4096);
    void* const mixed = member->share(rank.rank() == 0 ? first.bytes() : own.bytes());
    EXPECT_NE(mixed, first.window());
    member->unshare(mixed);
    member->unshare(again);
    member->unshare(part);
    const Shared signals(member, 64);
    member->finish({member->put(first.at(0), 100, first.at(0), 1 - rank.rank(),
                                SignalPart{signals.at(0), 1})});
    member->await(signals.word(0), 1);
    rank.barrier();
  });
}

// Two communicators of the same processes.
TEST(OneSidedWindow, CommunicatorsAreIndependent) {
  expect_processes_pass(2, [](Rank& rank) {
    Member one(rank, kNewest);
    Member other(rank, "ncclGinPlugin_v13");
    const Shared first(one, 4096);
    const Shared second(other, 4096);
    const int peer = 1 - rank.rank();
    one->finish({one->put({}, 0, {}, peer, SignalPart{first.at(0), 1})});
    other->finish({other->put({}, 0, {}, peer, SignalPart{second.at(8), 2})});
    one->await(first.word(0), 1);
    other->await(second.word(1), 2);
    EXPECT_EQ(second.word(0), 0U);
    rank.barrier();
  });
}

TEST(OneSidedMisuse, UnselectedPluginDeclinesInit) {
  expect_processes_pass(1, [](Rank&) {
    unsetenv("NCCL_RMA_PLUGIN");
    unsetenv("NCCL_GIN_PLUGIN");
    const auto net = start_host();
    for (const char* const symbol : nccl::kOneSidedSymbols) {
      void* context = nccl::kGarbage;
      const auto table = nccl::find_one_sided(net->module(), symbol);
      EXPECT_EQ(table->init(&context, 1, nccl::Host::logger()), NcclResult::kInvalidUsage);
      EXPECT_EQ(context, nullptr);
      EXPECT_EQ(table->finalize(context), NcclResult::kSuccess);
    }
  });
}

TEST(OneSidedMisuse, WrongCallsFailAndHaveNoOtherEffect) {
  expect_processes_pass(1, [](Rank& rank) {
    Member member(rank, kNewest);
    const Shared window(member, 4096);
    const auto& table = member->table();
    const auto put = [&](size_t from, size_t size, size_t to, uint32_t peer, int number) {
      void* request = nccl::kGarbage;
      const auto result =
          table.iput(member->puts(), number, window.at(from), size, window.at(to), peer, &request);
      EXPECT_EQ(request == nullptr, result != NcclResult::kSuccess);
      if (request != nullptr) member->finish({request});
      return result;
    };
    EXPECT_EQ(put(0, 4096, 0, 0, 0), NcclResult::kSuccess);
    EXPECT_EQ(put(0, 4096, 1, 0, 0), NcclResult::kInvalidArgument);
    EXPECT_EQ(put(1, 4096, 0, 0, 0), NcclResult::kInvalidArgument);
    EXPECT_EQ(put(0, SIZE_MAX, 8, 0, 0), NcclResult::kInvalidArgument);
    EXPECT_EQ(put(SIZE_MAX, 1, 0, 0, 0), NcclResult::kInvalidArgument);
    EXPECT_EQ(put(0, 1, 0, 1, 0), NcclResult::kInvalidArgument) << "no such rank";
    EXPECT_EQ(put(0, 1, 0, 0, 2), NcclResult::kInternalError) << "no such context";
    EXPECT_EQ(put(0, 1, 0, 0, -1), NcclResult::kInternalError);
    const auto signal = [&](const SignalPart& part) {
      void* request = nccl::kGarbage;
      return table.iputSignal(member->puts(), 0, {}, 0, {}, 0, part, &request);
    };
    EXPECT_EQ(signal({window.at(4), 1}), NcclResult::kInvalidArgument) << "across two words";
    EXPECT_EQ(signal({window.at(4096), 1}), NcclResult::kInvalidArgument);
    EXPECT_EQ(signal({window.at(0), 1, 3}), NcclResult::kInvalidArgument) << "no such operation";
    EXPECT_EQ(signal({{}, 1}), NcclResult::kInvalidArgument) << "no window";
    void* request = nccl::kGarbage;
    EXPECT_EQ(table.iput(member->puts(), 0, {}, 8, window.at(0), 0, &request),
              NcclResult::kInvalidArgument);
    EXPECT_EQ(table.iget(member->puts(), 0, window.at(1), 4096, window.at(0), 0, &request),
              NcclResult::kInvalidArgument);
    EXPECT_EQ(table.iflush(member->puts(), 0, window.window(), 7, &request),
              NcclResult::kInvalidArgument);
    int done = 1;
    EXPECT_EQ(table.test(member->collective(), nullptr, &done), NcclResult::kInternalError);
    EXPECT_EQ(done, 0);
    void* another = nccl::kGarbage;
    EXPECT_EQ(table.regMrSym(member->collective(), window.bytes().data(), 4096, 4, &another),
              NcclResult::kInvalidArgument);
    EXPECT_EQ(another, nullptr);
    EXPECT_EQ(table.regMrSym(member->collective(), nullptr, 0, nccl::kPointerHost, &another),
              NcclResult::kInvalidArgument);
    EXPECT_EQ(table.deregMrSym(member->collective(), nullptr), NcclResult::kInternalError);
    EXPECT_EQ(table.createContext(member->collective(), 0, &another), NcclResult::kInternalError);
    EXPECT_EQ(table.closeColl(nullptr), NcclResult::kSuccess);
    EXPECT_EQ(table.progress(nullptr), NcclResult::kInternalError);
    EXPECT_EQ(put(0, 8, 8, 0, 1), NcclResult::kSuccess) << "correct calls still succeed";
    EXPECT_FALSE(member->has_error());
  });
}

// Rank 0 refuses the write; its other windows still work.
TEST(OneSidedFailure, PutToAnUnsharedWindowIsRefused) {
  expect_processes_pass(3, [](Rank& rank) {
    Member member(rank, kNewest);
    const Shared data(member, 4096);
    const Shared signals(member, 64);
    const Pages passing(4096);
    void* const window = member->share(passing.bytes());
    rank.barrier();
    if (rank.rank() == 0) member->unshare(window);
    rank.barrier();
    if (rank.rank() == 1) {
      void* const request = member->put(data.at(0), 4096, {window, 0}, 0);
      EXPECT_EQ(member->result_of(request), NcclResult::kRemoteError);
      EXPECT_TRUE(member->has_error());
      // NCCL's GIN goes on testing it.
      const size_t logged = logged_lines().size();
      for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(member->result_of(request), NcclResult::kRemoteError);
      }
      EXPECT_EQ(logged_lines().size(), logged);
    }
    rank.barrier();
    if (rank.rank() == 2) {
      member->finish({member->put(data.at(0), 4096, data.at(0), 0, SignalPart{signals.at(0), 1})});
      EXPECT_FALSE(member->has_error());
    }
    if (rank.rank() == 0) member->await(signals.word(0), 1);
    rank.barrier();
    if (rank.rank() != 0) member->unshare(window);
  });
}

TEST(OneSidedFailure, KilledPeerFailsOnlyPutsToIt) {
  const std::vector<int> statuses = run_processes(3, [](Rank& rank) {
    setenv("PACECAR_TIMEOUT", "5s", 0);
    Member member(rank, kNewest);
    const Shared data(member, 1 << 20);
    const Shared signals(member, 64);
    rank.barrier();
    if (rank.rank() == 2) kill(getpid(), SIGKILL);
    if (rank.rank() == 0) {
      EXPECT_EQ(member.first_failure(data.at(0), 1 << 20, 2), NcclResult::kRemoteError);
    }
    // A rank that only waits sees the error too.
    poll_until("the error", [&] {
      member->table().progress(member->puts());
      return member->has_error();
    });
    EXPECT_TRUE(was_logged(nccl::LogSeverity::kWarn, nic_address()));
    // With some providers the death of one rank fails all others.
    if (nic_names().starts_with("ofi:") && !nic_names().starts_with("ofi:tcp")) return;
    const int peer = 1 - rank.rank();
    member->finish(
        {member->put(data.at(0), 4096, data.at(4096), peer, SignalPart{signals.at(0), 1})});
    member->await(signals.word(0), 1);
    EXPECT_EQ(member->result_of_put(data.at(0), 8, data.at(0), 2), NcclResult::kRemoteError);
    rank.meet(peer);  // whose put may not be done yet
  });
  EXPECT_TRUE(WIFSIGNALED(statuses[2]));
  EXPECT_EQ(statuses[0], 0);
  EXPECT_EQ(statuses[1], 0);
}

// Remaining ranks see no error, and their signals have arrived.
TEST(OneSidedFailure, LeavingRankCausesNoError) {
  expect_processes_pass(4, [](Rank& rank) {
    Member member(rank, kNewest);
    auto data = std::make_unique<Shared>(member, 4096);
    for (int leaving = 0; leaving < rank.size(); ++leaving) {
      if (leaving == rank.rank()) {
        if (leaving + 1 < rank.size()) {
          member->finish({member->put({}, 0, {}, leaving + 1, SignalPart{data->at(0), 9})});
        }
        // Rank 2 leaves with a request that is never tested.
        if (leaving == 2) member->put({}, 0, {}, 3, SignalPart{data->at(8), 1});
        data.reset();
        member.host().leave();
      }
      rank.barrier();
      if (leaving + 1 == rank.rank()) member->await(data->word(0), 9);
      EXPECT_TRUE(leaving >= rank.rank() || !member->has_error());
      rank.barrier();
    }
  });
}

TEST(OneSidedFailure, AbortedRankReceivesNoMoreWrites) {
  expect_processes_pass(2, [](Rank& rank) {
    setenv("PACECAR_TIMEOUT", "60s", 1);
    Member member(rank, kNewest);
    auto data = std::make_unique<Pages>(32 << 20);
    void* const window = member->share(data->bytes());
    std::vector<void*> requests;
    for (size_t i = 0; i < 32; ++i) {
      const WindowPlace part{window, i << 20};
      requests.push_back(member->put(part, 1 << 20, part, 1 - rank.rank()));
    }
    rank.barrier();  // puts to a rank that has left are refused
    if (rank.rank() == 0) {
      member->unshare(window);
      data->forbid_access();
      member.host().leave();
    } else {
      for (void* const request : requests) member->result_of(request);
      member->unshare(window);
    }
    rank.barrier();
  });
}

}  // namespace
}  // namespace pacecar::test::one_sided_test
