// The ranks of a job on one host as processes, with what a bootstrap gives them: a place to leave
// handles and figures, and a barrier. A rank that fails ends the others.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>

#include "bench/nccl/plugin.h"
#include "transport/base/result.h"

namespace pacecar::nccl {

constexpr int kMaxRanks = 64;

struct RankFigures {
  double seconds = 0;      // per operation
  double cpu_seconds = 0;  // per operation
  uint64_t wrong = 0;      // elements
};

// Lives in memory that all ranks share. What a rank writes, others read after the next barrier.
class Board {
 public:
  explicit Board(int ranks) : ranks_(ranks) {}

  int ranks() const { return ranks_; }
  std::array<HandleBytes, kMaxRanks> handles{};
  std::array<RankFigures, kMaxRanks> figures{};

  // Waits for all ranks. Error: kPeer when one of them has failed.
  Result<void> barrier();
  // As a Patience: an error when another rank has failed.
  Result<void> others_are_well() const;
  void give_up() { abandoned_.store(true); }

 private:
  int ranks_;
  std::atomic<int> arrived_{0};
  std::atomic<uint32_t> round_{0};
  std::atomic<bool> abandoned_{false};
};

// Runs `body` in one process per rank and prints their errors. True when all ranks succeeded.
using RankBody = std::function<Result<void>(Board& board, int rank)>;
bool run_ranks(int ranks, const RankBody& body);

}  // namespace pacecar::nccl
