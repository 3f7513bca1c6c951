// One-sided operations through NCCL's tables. Windows and signals are in GPU memory that the NIC
// cannot access. A driver library without a GPU replaces libcuda.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "tests/plugin/one_sided_member.h"
#include "tests/support/fake_gpu.h"

namespace pacecar::test::one_sided_gpu_test {
namespace {

using nccl::NcclResult;
using nccl::SignalPart;
using nccl::WindowPlace;

constexpr const char* kNewestTable = "ncclRmaPlugin_v16";
constexpr std::array<size_t, 4> kGpuSizes = {1, 4096, 100'001, 900'000};
constexpr size_t kGpuSlot = 1 << 20;  // room for each of kGpuSizes

// Memory of the rank's GPU, shared as a window with all ranks.
class GpuShared {
 public:
  GpuShared(const FakeGpu& gpu, const Member& member, size_t bytes)
      : gpu_(gpu),
        member_(member),
        buffer_(gpu, bytes),
        window_(member->share(buffer_.bytes(), nccl::kPointerCuda)) {}
  ~GpuShared() { member_->unshare(window_); }

  WindowPlace at(size_t offset) const { return {window_, offset}; }
  void* window() const { return window_; }
  void fill(size_t offset, size_t size, uint64_t seed) const {
    std::vector<uint8_t> bytes(size);
    fill_pattern(bytes, seed);
    buffer_.write(bytes, offset);
  }
  bool holds(size_t offset, size_t size, uint64_t seed) const {
    return !find_mismatch(gpu_.read(buffer_.data() + offset, size), seed);
  }
  uint64_t word(size_t index) const {
    uint64_t value = 0;
    std::memcpy(&value, gpu_.read(buffer_.data() + 8 * index, 8).data(), 8);
    return value;
  }
  // Polls as a kernel does, while progress() runs as in NCCL's thread.
  void await(size_t index, uint64_t value) const {
    poll_until("a signal", [&] {
      member_->table().progress(member_->puts());
      return word(index) == value;
    });
  }

 private:
  const FakeGpu& gpu_;
  const Member& member_;
  const GpuBuffer buffer_;
  void* const window_;
};

// Runs `body` in `ranks` processes with the fake driver and staged GPU memory.
std::vector<int> run_with_gpus(int ranks, const std::function<void(const FakeGpu&, Rank&)>& body) {
  return run_processes(ranks, [&](Rank& rank) {
    const FakeGpu gpu(FAKE_CUDA);
    setenv("PACECAR_GPU", "staged", 1);
    body(gpu, rank);
  });
}
void expect_pass_with_gpus(int ranks, const std::function<void(const FakeGpu&, Rank&)>& body) {
  EXPECT_EQ(run_with_gpus(ranks, body), std::vector<int>(static_cast<size_t>(ranks)));
}

struct GpuLife {
  const char* symbol;
  int ranks;
};
class OneSidedGpu : public testing::TestWithParam<GpuLife> {};

// Every rank puts to every rank, itself included, messages of one piece and of many; then it gets
// them back.
TEST_P(OneSidedGpu, EachRankPutsToAndGetsFromAllRanks) {
  expect_pass_with_gpus(GetParam().ranks, [](const FakeGpu& gpu, Rank& rank) {
    const Member member(rank, GetParam().symbol);
    EXPECT_EQ(member->table().pointer_support(0), nccl::kPointerHost | nccl::kPointerCuda);
    const auto own = static_cast<size_t>(rank.rank());
    const auto ranks = static_cast<size_t>(rank.size());
    const auto place = [](size_t peer, size_t part) {
      return (peer * kGpuSizes.size() + part) * kGpuSlot;
    };
    const auto seed = [](size_t from, size_t to, size_t part) {
      return from << 20 | to << 10 | part;
    };
    const size_t bytes = place(ranks, 0);
    const GpuShared source(gpu, member, bytes);
    const GpuShared target(gpu, member, bytes);
    const GpuShared signals(gpu, member, 64);
    std::vector<void*> requests;
    for (size_t peer = 0; peer < ranks; ++peer) {
      for (size_t part = 0; part < kGpuSizes.size(); ++part) {
        source.fill(place(peer, part), kGpuSizes[part], seed(own, peer, part));
        requests.push_back(member->put(source.at(place(peer, part)), kGpuSizes[part],
                                       target.at(place(own, part)), static_cast<int>(peer),
                                       SignalPart{signals.at(8), 10}));
      }
      requests.push_back(member->put({}, 0, {}, static_cast<int>(peer),
                                     SignalPart{signals.at(16), 0, nccl::kSignalIncrement}));
    }
    member->finish(requests);
    signals.await(1, 10 * kGpuSizes.size() * ranks);
    signals.await(2, ranks);
    for (size_t peer = 0; peer < ranks; ++peer) {
      for (size_t part = 0; part < kGpuSizes.size(); ++part) {
        EXPECT_TRUE(target.holds(place(peer, part), kGpuSizes[part], seed(peer, own, part)));
      }
    }
    rank.barrier();
    if (member->table().gets()) {
      const GpuShared back(gpu, member, bytes);
      requests.clear();
      for (size_t peer = 0; peer < ranks; ++peer) {
        for (size_t part = 0; part < kGpuSizes.size(); ++part) {
          requests.push_back(member->get(target.at(place(own, part)), kGpuSizes[part],
                                         back.at(place(peer, part)), static_cast<int>(peer)));
        }
        requests.push_back(member->flush(back.window(), static_cast<int>(peer)));
      }
      member->finish(requests);
      for (size_t peer = 0; peer < ranks; ++peer) {
        for (size_t part = 0; part < kGpuSizes.size(); ++part) {
          EXPECT_TRUE(back.holds(place(peer, part), kGpuSizes[part], seed(own, peer, part)));
        }
      }
      rank.barrier();
    }
    EXPECT_FALSE(member->has_error());
    rank.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(
    Versions, OneSidedGpu,
    testing::Values(GpuLife{"ncclGinPlugin_v11", 2}, GpuLife{"ncclGinPlugin_v12", 2},
                    GpuLife{"ncclGinPlugin_v13", 1}, GpuLife{"ncclRmaPlugin_v13", 3},
                    GpuLife{"ncclRmaPlugin_v14", 2}, GpuLife{kNewestTable, 4}));

void put_in_order_to_gpus() {
  constexpr size_t kRounds = 200;
  expect_pass_with_gpus(2, [](const FakeGpu& gpu, Rank& rank) {
    gpu.with([](FakeCuda& cuda) { cuda.late = 20; });
    const Member member(rank, kNewestTable);
    constexpr size_t kPart = 5000;
    const GpuShared data(gpu, member, kRounds * kPart);
    const GpuShared signals(gpu, member, 64);
    if (rank.rank() == 0) {
      std::vector<void*> requests;
      for (size_t round = 0; round < kRounds; ++round) {
        data.fill(round * kPart, kPart, round);
        const WindowPlace part = data.at(round * kPart);
        requests.push_back(member->put(part, kPart, part, 1, SignalPart{signals.at(0), 1}));
      }
      member->finish(requests);
    } else {
      uint64_t seen = 0;
      poll_until("the last signal", [&] {
        member->table().progress(member->puts());
        const uint64_t now = signals.word(0);
        for (; seen < now; ++seen) EXPECT_TRUE(data.holds(seen * kPart, kPart, seen));
        return seen == kRounds;
      });
    }
    rank.barrier();
  });
}

TEST(OneSidedGpuOrder, SignalArrivesAfterEarlierPuts) { put_in_order_to_gpus(); }

TEST(OneSidedGpuOrder, SignalArrivesAfterEarlierPutsOverABadNetwork) {
  if (!nic_names().starts_with("soft:")) GTEST_SKIP() << "faults are made by software NICs";
  setenv("PACECAR_FAULT", "loss=0.01,duplicate=0.01,reorder=0.02,reorder_by=2ms", 1);
  put_in_order_to_gpus();
  unsetenv("PACECAR_FAULT");
}

TEST(OneSidedGpuFailure, KilledPeerFailsOnlyPutsToIt) {
  const auto statuses = run_with_gpus(3, [](const FakeGpu& gpu, Rank& rank) {
    setenv("PACECAR_TIMEOUT", "5s", 0);
    const Member member(rank, kNewestTable);
    constexpr size_t kBytes = 4 << 20;  // written by rank 2; the others use the bytes behind
    const GpuShared data(gpu, member, kBytes + 8192);
    const GpuShared signals(gpu, member, 64);
    rank.barrier();
    if (rank.rank() == 2) {
      for (const int peer : {0, 1}) {
        member->put(data.at(0), kBytes, data.at(0), peer, SignalPart{signals.at(8), 1});
      }
      for (int i = 0; i < 20; ++i) member->table().progress(member->puts());
      kill(getpid(), SIGKILL);
    }
    if (rank.rank() == 0) {
      EXPECT_EQ(member.first_failure(data.at(0), kBytes, 2), NcclResult::kRemoteError);
    }
    poll_until("the error", [&] {
      member->table().progress(member->puts());
      return member->has_error();
    });
    // With some providers the death of one rank fails all others.
    if (nic_names().starts_with("ofi:") && !nic_names().starts_with("ofi:tcp")) return;
    const int peer = 1 - rank.rank();
    data.fill(kBytes, 4096, 7);
    member->finish({member->put(data.at(kBytes), 4096, data.at(kBytes + 4096), peer,
                                SignalPart{signals.at(0), 1})});
    signals.await(0, 1);
    EXPECT_TRUE(data.holds(kBytes + 4096, 4096, 7));
    rank.meet(peer);  // whose put may not be done yet
  });
  EXPECT_TRUE(WIFSIGNALED(statuses[2]));
  EXPECT_EQ(statuses[0], 0);
  EXPECT_EQ(statuses[1], 0);
}

// Requests may end in any way. Nothing is copied to memory that has been freed.
TEST(OneSidedGpuFailure, AbortedRankReceivesNoMoreWrites) {
  expect_pass_with_gpus(2, [](const FakeGpu& gpu, Rank& rank) {
    Member member(rank, kNewestTable);
    std::vector<void*> requests;
    {
      const GpuShared data(gpu, member, 8 << 20);
      for (size_t i = 0; i < 8; ++i) {
        const WindowPlace part = data.at(i << 20);
        requests.push_back(member->put(part, 1 << 20, part, 1 - rank.rank()));
      }
      rank.barrier();  // puts to a rank that has left are refused
      if (rank.rank() == 1) {
        for (void* const request : requests) member->result_of(request);
      }
    }
    if (rank.rank() == 0) member.host().leave();
    EXPECT_EQ(gpu.with([](FakeCuda& cuda) { return cuda.copy_failure; }), 0);
    rank.barrier();
  });
}

}  // namespace
}  // namespace pacecar::test::one_sided_gpu_test
