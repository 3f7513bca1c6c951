// The board of ranks on several hosts: rank 0 keeps it, the others connect to rank 0 over TCP. All
// entries are exchanged at each barrier. Thread rule: one thread per rank.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/nccl/board.h"
#include "bench/perf/control_channel.h"
#include "transport/base/units.h"

namespace pacecar::nccl {

class RemoteBoard final : public Board {
 public:
  // Rank 0 listens on `port` of `host`, one of its addresses, until all others have joined. The
  // others connect there, again and again for at most `limit`. Errors: kNotFound, kSystem, kPeer.
  static Result<std::unique_ptr<RemoteBoard>> join(int ranks, int rank, const std::string& host,
                                                   uint16_t port, Duration limit);

  Result<void> barrier() override;
  Result<void> others_are_well() override { return {}; }  // the transport itself will report it
  // Called before this rank ends with an error: the others' next barrier fails with `why`.
  void give_up(const std::string& why);

 private:
  RemoteBoard(int ranks, int rank, Duration limit) : Board(ranks), rank_(rank), limit_(limit) {}
  Result<void> gather();
  Result<void> spread();

  int rank_;
  Duration limit_;
  std::vector<perf::ControlChannel> channels_;  // of rank 0: to rank i+1; of others: to rank 0
};

}  // namespace pacecar::nccl
