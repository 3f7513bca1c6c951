// Random puts, signals, gets and flushes of several ranks, in host and GPU memory, compared with a
// model of each memory.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <random>
#include <utility>

#include "tests/gdr/rma_ranks.h"

namespace pacecar::rma_gpu_property {
namespace {

using rma::Signal;
using test::pattern_of;
using test::RankWindow;
using test::RmaRanks;
using test::value_of;

constexpr size_t kRanks = 3;
constexpr size_t kRankPart = 400'000;  // of each rank, in each rank's window
constexpr size_t kWindowBytes = kRanks * kRankPart;
constexpr size_t kWords = 4;

// One case: each rank puts into its own part of every rank's target, from sources that do not
// change, and gets from the sources.
class Case {
 public:
  Case(const RmaRanks& ranks, uint64_t seed)
      : ranks_(ranks),
        draw_(seed),
        source_(share(kWindowBytes)),
        target_(share(kWindowBytes)),
        fetches_(share(kRankPart)),
        words_(share(kWords * 8)),
        expected_(kRanks, std::vector<uint8_t>(kWindowBytes)),
        sums_(kRanks, std::array<uint64_t, kWords>{}) {
    for (size_t rank = 0; rank < kRanks; ++rank) {
      source_.memory[rank]->write(pattern_of(kWindowBytes, seed + rank));
      target_.memory[rank]->write(expected_[rank]);
      words_.memory[rank]->write(std::vector<uint8_t>(kWords * 8));
    }
  }
  ~Case() {
    for (const RankWindow* window : {&words_, &fetches_, &target_, &source_})
      ranks_.unshare(*window);
  }

  void round() {
    std::vector<size_t> used(kRanks * kRanks);  // of each rank's part of each target
    for (size_t i = below(40); i-- > 0;) {
      const size_t rank = below(kRanks);
      const size_t peer = below(kRanks);
      size_t& begin = used[rank * kRanks + peer];
      const size_t most = below(4) == 0 ? 300'000 : 5000;
      const size_t size = std::min(below(most), kRankPart - 1 - begin);
      const uint64_t offset = rank * kRankPart + begin;
      switch (below(8)) {
        case 0: start(rank, ranks_[rank].flush(peer)); break;
        case 1: fetch(rank, peer, size); break;
        default: put(rank, peer, size, offset); begin += size;
      }
      if (below(3) == 0) ranks_.progress();
    }
    finish();
  }

 private:
  RankWindow share(size_t bytes) {
    const uint64_t kinds = draw_();
    return ranks_.share(bytes, [kinds](size_t rank) { return (kinds >> rank & 1) != 0; });
  }
  size_t below(size_t bound) { return draw_() % bound; }

  void start(size_t rank, const Result<rma::Operation*>& operation) {
    started_.emplace_back(rank, value_of(operation));
  }
  void put(size_t rank, size_t peer, size_t size, uint64_t offset) {
    const size_t from = below(kWindowBytes - size);
    std::optional<Signal> signal;
    if (below(2) == 0) {
      const size_t word = below(kWords);
      signal = Signal{words_.at(rank, 8 * word), draw_()};
      sums_[peer][word] += signal->value;
    }
    start(rank,
          ranks_[rank].put(peer, source_.at(rank, from), size, target_.at(rank, offset), signal));
    const auto bytes = source_.memory[rank]->read(from, size);
    std::ranges::copy(bytes, expected_[peer].begin() + static_cast<int64_t>(offset));
  }
  // At most one get per rank and round, so that two never write to the same bytes.
  void fetch(size_t rank, size_t peer, size_t size) {
    if (std::exchange(fetched_[rank], true)) return;
    const size_t from = below(kWindowBytes - size);
    const uint64_t to = below(kRankPart - size);
    start(rank, ranks_[rank].get(peer, source_.at(rank, from), size, fetches_.at(rank, to)));
    got_.push_back({rank, to, source_.memory[peer]->read(from, size)});
  }

  void finish() {
    for (const auto& [rank, operation] : started_) ranks_.finish(rank, operation);
    started_.clear();
    for (const Got& got : got_) {
      RC_ASSERT(fetches_.memory[got.rank]->read(got.offset, got.bytes.size()) == got.bytes);
    }
    got_.clear();
    fetched_.fill(false);
    for (size_t rank = 0; rank < kRanks; ++rank) {
      for (size_t word = 0; word < kWords; ++word) {
        ranks_.await(*words_.memory[rank], 8 * word, sums_[rank][word]);
      }
      RC_ASSERT(target_.memory[rank]->read(0, kWindowBytes) == expected_[rank]);
    }
  }

  struct Got {
    size_t rank;
    uint64_t offset;
    std::vector<uint8_t> bytes;
  };

  const RmaRanks& ranks_;
  std::mt19937_64 draw_;
  const RankWindow source_;
  const RankWindow target_;
  const RankWindow fetches_;
  const RankWindow words_;
  std::vector<std::vector<uint8_t>> expected_;
  std::vector<std::array<uint64_t, kWords>> sums_;
  std::vector<std::pair<size_t, rma::Operation*>> started_;
  std::array<bool, kRanks> fetched_{};
  std::vector<Got> got_;
};

TEST(RmaGpuProperty, OperationsMatchTheModel) {
  const RmaRanks ranks(kRanks);
  EXPECT_TRUE(rc::check([&](uint64_t seed) {
    ranks.gpu().with([&](FakeCuda& cuda) { cuda.late = static_cast<int>(seed % 20); });
    Case one(ranks, seed);
    for (int i = 0; i < 3; ++i) one.round();
  }));
}

}  // namespace
}  // namespace pacecar::rma_gpu_property
