// One-sided operations on windows and signal words in GPU memory that the NIC does not reach.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gdr/rma_ranks.h"

namespace pacecar::rma_gpu_test {
namespace {

using rma::Signal;
using test::pattern_of;
using test::RankWindow;
using test::RmaRanks;
using testing::HasSubstr;

constexpr auto kOnGpu = [](size_t) { return true; };
constexpr auto kOnHost = [](size_t) { return false; };

// Parameters: whether the origin's memory is on a GPU, and whether the target's memory is.
class RmaGpuKinds : public testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(RmaGpuKinds, PutAndGetCarryEverySize) {
  const auto [from_gpu, to_gpu] = GetParam();
  const RmaRanks ranks(2);
  constexpr size_t kMost = (3 << 20) + 5;
  const RankWindow data =
      ranks.share(kMost, [from_gpu, to_gpu](size_t rank) { return rank == 0 ? from_gpu : to_gpu; });
  const RankWindow back = ranks.share(kMost, [from_gpu](size_t) { return from_gpu; });
  const RankWindow words = ranks.share(64, [to_gpu](size_t) { return to_gpu; });
  uint64_t seed = 0;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{8}, size_t{4096}, size_t{70'001}, kMost}) {
    const auto bytes = pattern_of(size, ++seed);
    data.memory[0]->write(bytes);
    ranks.finish(0,
                 ranks[0].put(1, data.at(0, 0), size, data.at(0, 0), Signal{words.at(0, 16), 3}));
    ranks.await(*words.memory[1], 16, 3 * seed);
    ASSERT_EQ(data.memory[1]->read(0, size), bytes) << size;
    ranks.finish(0, ranks[0].get(1, data.at(0, 0), size, back.at(0, 0)));
    ASSERT_EQ(back.memory[0]->read(0, size), bytes) << size << " bytes got";
  }
  ranks.unshare(words);
  ranks.unshare(back);
  ranks.unshare(data);
}

INSTANTIATE_TEST_SUITE_P(All, RmaGpuKinds, testing::Combine(testing::Bool(), testing::Bool()));

TEST(RmaGpu, EveryRankPutsIntoEveryRankAndItself) {
  const RmaRanks ranks(3);
  constexpr size_t kPart = 700'000;
  const RankWindow source = ranks.share(3 * kPart, kOnGpu);
  const RankWindow target = ranks.share(3 * kPart, kOnGpu);
  const RankWindow words = ranks.share(64, kOnGpu);
  ranks.of_each([&](size_t rank) {
    std::vector<rma::Operation*> puts;
    for (size_t to = 0; to < 3; ++to) {
      source.memory[rank]->write(pattern_of(kPart, 10 * rank + to), to * kPart);
      puts.push_back(ranks[rank]
                         .put(to, source.at(rank, to * kPart), kPart, target.at(rank, rank * kPart),
                              Signal{words.at(rank, 0), 1})
                         .value());
    }
    for (auto* put : puts) test::step_until("a put", [&] { return *ranks[rank].test(put); });
  });
  for (size_t rank = 0; rank < 3; ++rank) {
    ranks.await(*words.memory[rank], 0, 3);
    for (size_t from = 0; from < 3; ++from) {
      EXPECT_EQ(target.memory[rank]->read(from * kPart, kPart),
                pattern_of(kPart, 10 * from + rank));
    }
  }
  ranks.unshare(words);
  ranks.unshare(target);
  ranks.unshare(source);
}

// Data on a GPU, the signal word on the GPU (true) or the host; copies are late, in any order of
// streams.
class RmaGpuOrder : public testing::TestWithParam<bool> {};

TEST_P(RmaGpuOrder, SignalIsVisibleAfterItsPut) {
  const RmaRanks ranks(2);
  constexpr size_t kRounds = 200;
  constexpr size_t kPart = 5000;
  const RankWindow data = ranks.share(kRounds * kPart, kOnGpu);
  const RankWindow words = ranks.share(64, [](size_t) { return GetParam(); });
  ranks.gpu().with([](FakeCuda& cuda) { cuda.late = 50; });
  std::vector<rma::Operation*> puts;
  for (size_t round = 0; round < kRounds; ++round) {
    data.memory[0]->write(pattern_of(kPart, round), round * kPart);
    puts.push_back(ranks[0]
                       .put(1, data.at(0, round * kPart), kPart, data.at(0, round * kPart),
                            Signal{words.at(0, 8), 1})
                       .value());
  }
  uint64_t seen = 0;
  test::step_until("the last signal", [&] {
    ranks.progress();
    const uint64_t now = words.memory[1]->word(8);
    for (; seen < now; ++seen) {
      EXPECT_EQ(data.memory[1]->read(seen * kPart, kPart), pattern_of(kPart, seen));
    }
    return seen == kRounds;
  });
  for (auto* put : puts) ranks.finish(0, put);
  ranks.unshare(words);
  ranks.unshare(data);
}

TEST_P(RmaGpuOrder, NothingCompletesBeforeTheCopy) {
  const RmaRanks ranks(2);
  const RankWindow source = ranks.share(4096, kOnHost);
  const RankWindow target = ranks.share(4096, kOnGpu);
  const RankWindow words = ranks.share(64, [](size_t) { return GetParam(); });
  source.memory[0]->write(pattern_of(4096, 1));
  ranks.hold(true);
  auto* const put =
      ranks[0].put(1, source.at(0, 0), 4096, target.at(0, 0), Signal{words.at(0, 0), 1}).value();
  auto* const flush = ranks[0].flush(1).value();
  for (int i = 0; i < 500; ++i) {
    ranks.progress();
    ASSERT_FALSE(*ranks[0].test(put)) << "the bytes are still in the landing";
    ASSERT_FALSE(*ranks[0].test(flush));
    ASSERT_EQ(words.memory[1]->word(0), 0U);
  }
  ranks.hold(false);
  ranks.finish(0, put);
  ranks.finish(0, flush);
  ranks.await(*words.memory[1], 0, 1);
  EXPECT_EQ(target.memory[1]->read(0, 4096), pattern_of(4096, 1));
  ranks.unshare(words);
  ranks.unshare(target);
  ranks.unshare(source);
}

INSTANTIATE_TEST_SUITE_P(Words, RmaGpuOrder, testing::Bool());

TEST(RmaGpu, SignalsToOneWordShareCopies) {
  const RmaRanks ranks(2);
  const RankWindow words = ranks.share(64, kOnGpu);
  ranks.hold(true);
  uint64_t sum = 0;
  std::vector<rma::Operation*> signals;
  for (uint64_t i = 1; i <= 100; ++i) {
    signals.push_back(ranks[0].put(1, {}, 0, {}, Signal{words.at(0, 0), i}).value());
    sum += i;
  }
  for (auto* signal : signals) ranks.finish(0, signal);
  for (int i = 0; i < 500; ++i) ranks.progress();
  const int before = ranks.gpu().with([](FakeCuda& cuda) { return cuda.copies; });
  ranks.hold(false);
  ranks.await(*words.memory[1], 0, sum);
  const int after = ranks.gpu().with([](FakeCuda& cuda) { return cuda.copies; });
  EXPECT_LE(after - before, 4) << "at most two rounds with a read and a write each";
  ranks.unshare(words);
}

// A GPU kernel resets signal words between signals.
TEST(RmaGpu, ResetWordCountsFromZero) {
  const RmaRanks ranks(2);
  const RankWindow words = ranks.share(64, kOnGpu);
  for (int i = 0; i < 3; ++i) {
    ranks.finish(0, ranks[0].put(1, {}, 0, {}, Signal{words.at(0, 24), ~uint64_t{0}}));
    ranks.await(*words.memory[1], 24, ~uint64_t{0});
    ranks.finish(0, ranks[0].put(1, {}, 0, {}, Signal{words.at(0, 24), 6}));
    ranks.await(*words.memory[1], 24, 5);
    words.memory[1]->write(std::vector<uint8_t>(8), 24);
  }
  EXPECT_EQ(words.memory[1]->word(16), 0U);
  EXPECT_EQ(words.memory[1]->word(32), 0U);
  ranks.unshare(words);
}

// With both landings full, the records that free them must not wait behind puts.
TEST(RmaGpu, BothRanksPutMoreThanTheLandingHolds) {
  const RmaRanks ranks(2);
  constexpr size_t kBytes = 4 * rma::Landing::kBytes + 1000;
  const RankWindow source = ranks.share(kBytes, kOnHost);
  const RankWindow target = ranks.share(kBytes, kOnGpu);
  for (size_t rank = 0; rank < 2; ++rank) source.memory[rank]->write(pattern_of(kBytes, rank));
  ranks.hold(true);
  std::vector<rma::Operation*> puts;
  for (size_t rank = 0; rank < 2; ++rank) {
    puts.push_back(
        ranks[rank].put(1 - rank, source.at(rank, 0), kBytes, target.at(rank, 0), {}).value());
    puts.push_back(ranks[rank].get(1 - rank, source.at(rank, 0), 9, target.at(rank, 0)).value());
  }
  for (int i = 0; i < 500; ++i) ranks.progress();
  ranks.hold(false);
  for (size_t i = 0; i < puts.size(); ++i) ranks.finish(i / 2, puts[i]);
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(target.memory[rank]->read(9, kBytes - 9),
              source.memory[1 - rank]->read(9, kBytes - 9));
  }
  ranks.unshare(target);
  ranks.unshare(source);
}

TEST(RmaGpu, ManySmallPutsKeepTheirOrder) {
  const RmaRanks ranks(2);
  constexpr size_t kPuts = 3000;
  const RankWindow source = ranks.share(kPuts * 8, kOnHost);
  const RankWindow target = ranks.share(64, kOnGpu);
  std::vector<rma::Operation*> puts;
  for (uint64_t i = 0; i < kPuts; ++i) {
    source.memory[0]->write({reinterpret_cast<const uint8_t*>(&i), sizeof i}, 8 * i);
    puts.push_back(ranks[0].put(1, source.at(0, 8 * i), 8, target.at(0, 8), {}).value());
  }
  for (auto* put : puts) ranks.finish(0, put);
  EXPECT_EQ(target.memory[1]->word(8), kPuts - 1);
  ranks.unshare(target);
  ranks.unshare(source);
}

// The memory is deregistered and freed while puts into it are in flight.
TEST(RmaGpu, DeregisteredMemoryIsNotTouchedAgain) {
  const RmaRanks ranks(3);
  constexpr size_t kBytes = 2 << 20;
  const RankWindow source = ranks.share(kBytes, kOnGpu);
  const RankWindow words = ranks.share(64, kOnGpu);
  RankWindow target = ranks.share(kBytes, kOnGpu);
  std::vector<rma::Operation*> puts;
  for (int i = 0; i < 20; ++i) {
    puts.push_back(ranks[0]
                       .put(1, source.at(0, 0), kBytes, target.at(0, 0), Signal{target.at(0, 8), 1})
                       .value());
  }
  for (int i = 0; i < 30; ++i) ranks.progress();
  ranks[1].unshare(target.shared[1]);
  target.memory[1].reset();
  bool failed = false;
  for (auto* put : puts) {
    const auto result = ranks.result_of(0, put);
    failed |= !result;
    EXPECT_TRUE(result || result.error().code == ErrorCode::kPeer);
  }
  EXPECT_TRUE(failed);
  EXPECT_TRUE(ranks[1].failure());
  // Other ranks can still put into other windows.
  ranks.finish(
      2, ranks[2].put(1, source.at(2, 0), kBytes, source.at(2, 0), Signal{words.at(2, 0), 1}));
  ranks.await(*words.memory[1], 0, 1);
  EXPECT_EQ(ranks.gpu().with([](FakeCuda& cuda) { return cuda.copy_failure; }), 0);
  for (const size_t rank : {size_t{0}, size_t{2}}) ranks[rank].unshare(target.shared[rank]);
  ranks.unshare(words);
  ranks.unshare(source);
}

// A put that has not begun when its window is unshared must not read that memory.
TEST(RmaGpu, PutsFromAWindowThatIsUnsharedFail) {
  const RmaRanks ranks(3);
  constexpr size_t kBytes = 2 << 20;
  const RankWindow words = ranks.share(64, kOnGpu);
  const RankWindow target = ranks.share(kBytes, kOnGpu);
  RankWindow sources[] = {ranks.share(kBytes, kOnGpu), ranks.share(kBytes, kOnHost)};
  for (const size_t origin : {size_t{0}, size_t{1}}) {
    RankWindow& source = sources[origin];
    std::vector<rma::Operation*> puts;
    for (int i = 0; i < 20; ++i) {
      puts.push_back(
          ranks[origin].put(2, source.at(origin, 0), kBytes, target.at(2, 0), {}).value());
    }
    ranks.unshare(source);
    for (auto& memory : source.memory) memory.reset();
    const auto last = ranks.result_of(origin, puts.back());
    ASSERT_FALSE(last);
    EXPECT_NE(last.error().message.find("unshared"), std::string::npos) << last.error().message;
  }
  // The other pair of ranks is not disturbed.
  ranks.finish(0, ranks[0].put(1, words.at(0, 0), 8, words.at(1, 0), Signal{words.at(1, 8), 1}));
  ranks.await(*words.memory[1], 8, 1);
  EXPECT_EQ(ranks.gpu().with([](FakeCuda& cuda) { return cuda.copy_failure; }), 0);
}

// The group's thread, and any holder of its lock, exist in the parent only.
TEST(RmaGpu, ForkedChildNeitherUsesNorWaitsForAGroup) {
  RmaRanks ranks(2);
  const RankWindow words = ranks.share(64, kOnHost);
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(10);
      EXPECT_THROW((void)ranks[0].put(1, words.at(0, 0), 8, words.at(1, 0), {}), std::logic_error);
      ranks.leave(0);
      _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0) << i;
  }
  ranks.finish(0, ranks[0].put(1, words.at(0, 0), 8, words.at(1, 0), Signal{words.at(1, 8), 1}));
  ranks.await(*words.memory[1], 8, 1);
  ranks.unshare(words);
}

// The origin completes a get before the target learns that the bytes have arrived.
TEST(RmaGpu, MemoryMayBeDeregisteredOnceAGetFromItIsDone) {
  const RmaRanks ranks(2);
  constexpr size_t kBytes = 100'000;
  for (uint64_t round = 0; round < 300; ++round) {
    const RankWindow source = ranks.share(kBytes, kOnHost);
    source.memory[1]->write(pattern_of(kBytes, round));
    const RankWindow back = ranks.share(kBytes, kOnHost);
    ranks.finish(0, ranks[0].get(1, source.at(0, 0), kBytes, back.at(0, 0)));
    ranks[1].unshare(source.shared[1]);
    ASSERT_EQ(back.memory[0]->read(0, kBytes), pattern_of(kBytes, round));
    ranks[0].unshare(source.shared[0]);
    ranks.unshare(back);
  }
  EXPECT_FALSE(ranks[0].failure());
  EXPECT_FALSE(ranks[1].failure());
}

TEST(RmaGpu, RankThatLeavesDuringPutsDoesNotDisturbTheOthers) {
  RmaRanks ranks(3);
  constexpr size_t kBytes = 2 << 20;
  const RankWindow data = ranks.share(kBytes, kOnGpu);
  const RankWindow words = ranks.share(64, kOnGpu);
  std::vector<rma::Operation*> puts;
  for (int i = 0; i < 10; ++i) {
    puts.push_back(ranks[0].put(1, data.at(0, 0), kBytes, data.at(0, 0), {}).value());
    (void)ranks[1].put(0, data.at(1, 0), kBytes, data.at(1, 0), {});
  }
  ranks.progress();
  ranks.leave(1);
  for (auto* put : puts) (void)ranks.result_of(0, put);
  data.memory[0]->write(pattern_of(100, 8));
  ranks.finish(0, ranks[0].put(2, data.at(0, 0), 100, data.at(0, 0), Signal{words.at(0, 0), 1}));
  ranks.await(*words.memory[2], 0, 1);
  EXPECT_EQ(data.memory[2]->read(0, 100), pattern_of(100, 8));
  ranks.unshare(words);
  ranks.unshare(data);
}

TEST(RmaGpu, FailedCopyFailsTheGroup) {
  const RmaRanks ranks(2);
  const RankWindow words = ranks.share(64, kOnGpu);
  ranks.gpu().with([](FakeCuda& cuda) { cuda.copies_fail = true; });
  (void)ranks[0].put(1, {}, 0, {}, Signal{words.at(0, 0), 1});
  test::step_until("the failure", [&] {
    ranks.progress();
    return ranks[1].failure().has_value();
  });
  EXPECT_EQ(ranks[1].failure()->code, ErrorCode::kSystem);
  EXPECT_THAT(ranks[1].failure()->message, HasSubstr("illegal memory access"));
  ranks.unshare(words);
}

TEST(RmaGpu, WindowIsRefusedWithoutPinnedMemory) {
  const RmaRanks ranks(1);
  const test::RankMemory memory(ranks.gpu(), 4096, true);
  ranks.gpu().with([](FakeCuda& cuda) { cuda.host_memory_fails = true; });
  const auto refused = ranks[0].share(memory.range());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("cuMemHostAlloc"));
  ranks.gpu().with([](FakeCuda& cuda) { cuda.host_memory_fails = false; });
  const auto shared = ranks[0].share(memory.range());
  ASSERT_TRUE(shared);
  ranks[0].unshare(*shared);
}

}  // namespace
}  // namespace pacecar::rma_gpu_test
