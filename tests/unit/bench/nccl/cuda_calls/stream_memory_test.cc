// Streams of the CPU device that write memory and wait for what others write.
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <vector>

#include "tests/unit/bench/nccl/cuda_calls/calls.h"

namespace pacecar::cuda_calls_test {
namespace {

constexpr unsigned kReached = 0, kEqual = 1, kAnd = 2, kNor = 3;
constexpr uint32_t kWait64 = 4, kWrite64 = 5, kBarrier = 6;

class StreamMemory : public testing::Test {
 protected:
  StreamMemory() { EXPECT_EQ(cuStreamCreate(&stream_, 1), 0); }
  ~StreamMemory() override { EXPECT_EQ(cuStreamDestroy_v2(stream_), 0); }

  static Pointer at(const std::atomic<uint64_t>& word) { return reinterpret_cast<Pointer>(&word); }
  // Whether a wait for `value` ends where the word is `seen`; if not, `then` ends it.
  bool passes(uint64_t seen, uint64_t value, unsigned condition, uint64_t then) {
    word_ = seen;
    marker_ = 0;
    EXPECT_EQ(cuStreamWaitValue64_v2(stream_, at(word_), value, condition), 0);
    EXPECT_EQ(cuStreamWriteValue64_v2(stream_, at(marker_), 1, 0), 0);
    // A GPU looks at all its streams in turn: when another has often been through, one that need
    // not wait is, too.
    void* other = nullptr;
    EXPECT_EQ(cuStreamCreate(&other, 1), 0);
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(cuStreamWriteValue64_v2(other, at(other_), 1, 0), 0);
      EXPECT_EQ(cuStreamSynchronize(other), 0);
    }
    EXPECT_EQ(cuStreamDestroy_v2(other), 0);
    const bool passed = marker_ == 1;
    word_ = then;
    EXPECT_EQ(cuStreamSynchronize(stream_), 0);
    return passed;
  }

  void* stream_ = nullptr;
  std::atomic<uint64_t> word_{0};
  std::atomic<uint64_t> marker_{0};
  std::atomic<uint64_t> other_{0};
};

TEST_F(StreamMemory, WaitsUntilAWordIsReached) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  EXPECT_TRUE(passes(5, 5, kReached, 5));
  EXPECT_TRUE(passes(6, 5, kReached, 6));
  EXPECT_FALSE(passes(4, 5, kReached, 5));
  EXPECT_TRUE(passes(2, kMost, kReached, 2));  // words wrap around
  EXPECT_FALSE(passes(kMost, 2, kReached, 2));
}

TEST_F(StreamMemory, WaitsForOtherConditions) {
  EXPECT_TRUE(passes(5, 5, kEqual, 5));
  EXPECT_FALSE(passes(6, 5, kEqual, 5));
  EXPECT_TRUE(passes(6, 2, kAnd, 6));
  EXPECT_FALSE(passes(6, 9, kAnd, 1));
  EXPECT_TRUE(passes(6, 2, kNor, 6));
  EXPECT_FALSE(passes(std::numeric_limits<uint64_t>::max(), 2, kNor, 0));
}

TEST_F(StreamMemory, OfThirtyTwoBitsLeavesTheOthers) {
  word_ = 7ULL << 32 | 1;
  EXPECT_EQ(cuStreamWaitValue32_v2(stream_, at(word_), 1, kEqual), 0);
  EXPECT_EQ(cuStreamWriteValue32_v2(stream_, at(word_), 9, 0), 0);
  EXPECT_EQ(cuStreamSynchronize(stream_), 0);
  EXPECT_EQ(word_.load(), 7ULL << 32 | 9);
}

TEST_F(StreamMemory, BatchesRunInOrder) {
  const std::vector<Step> steps{{.operation = kWrite64, .address = at(word_), .value = 1},
                                {.operation = kWait64, .address = at(other_), .value = 3},
                                {.operation = kWrite64, .address = at(marker_), .value = 2}};
  ASSERT_EQ(cuStreamBatchMemOp_v2(stream_, 3, steps.data(), 0), 0);
  while (word_ != 1) {
  }
  EXPECT_EQ(marker_, 0U);
  other_ = 3;
  EXPECT_EQ(cuStreamSynchronize(stream_), 0);
  EXPECT_EQ(marker_, 2U);
}

TEST_F(StreamMemory, RefusesWhatItDoesNotKnow) {
  const Step barrier{.operation = kBarrier, .address = 0, .value = 0};
  EXPECT_NE(cuStreamBatchMemOp_v2(stream_, 1, &barrier, 0), 0);
  EXPECT_EQ(cuStreamQuery(stream_), 0);
}

}  // namespace
}  // namespace pacecar::cuda_calls_test
