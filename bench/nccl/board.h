// The bootstrap of a job's ranks: they exchange handles and figures, and wait at a barrier.
// Thread rule: one thread per rank.
#pragma once

#include <array>
#include <cstdint>

#include "net_plugin/host/host.h"
#include "transport/base/result.h"

namespace pacecar::nccl {

constexpr int kMaxRanks = 64;

struct RankFigures {
  double seconds = 0;      // per operation
  double cpu_seconds = 0;  // per operation
  uint64_t wrong = 0;      // elements
  double elapsed = 0;      // seconds since this size began
};

class Board {
 public:
  explicit Board(int ranks) : ranks_(ranks) {}
  virtual ~Board() = default;

  int ranks() const { return ranks_; }
  // By rank. Each rank writes its own entry; the others read it after the next barrier.
  std::array<HandleBytes, kMaxRanks> handles{};
  std::array<RankFigures, kMaxRanks> figures{};

  // Waits for all ranks. Error: kPeer when one of them has failed.
  virtual Result<void> barrier() = 0;
  // An error when another rank is known to have failed.
  virtual Result<void> others_are_well() = 0;

 private:
  int ranks_;
};

}  // namespace pacecar::nccl
