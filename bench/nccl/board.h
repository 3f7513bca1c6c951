// The ranks of a job, and their bootstrap: they exchange handles and figures, and wait at a
// barrier. Thread rule: one thread per rank.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "net_plugin/host/host.h"
#include "transport/base/result.h"
#include "transport/base/units.h"

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

// What a rank does. It throws when it fails; the error is printed, and the other ranks fail too.
using RankBody = std::function<void(Board& board, int rank)>;

// Runs `body` in one process per rank on this host, with a board in shared memory. True when all
// ranks succeeded.
bool run_ranks(int ranks, const RankBody& body);

// One rank of a job whose ranks are on several hosts.
struct RemoteRank {
  int ranks = 2;
  int rank = 0;
  std::string root;  // an address of rank 0
  uint16_t port = 18515;
};
// Runs `body` as that rank in this process. Rank 0 listens until all others have joined; these try
// again and again to connect to it, for at most `limit`, which also limits each barrier. All
// entries of the board are exchanged at each barrier, over TCP. True when this rank succeeded.
bool run_remote_rank(const RemoteRank& self, Duration limit, const RankBody& body);

}  // namespace pacecar::nccl
