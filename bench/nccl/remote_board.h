// The board of ranks on several hosts: rank 0 keeps it, the others reach it over TCP. What the
// ranks have written is exchanged at each barrier.
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
  // Rank 0 waits at `host`, an address of its own, and `port` for all others; they try there until
  // it answers, for at most `limit`. Errors: kNotFound, kSystem, kPeer.
  static Result<std::unique_ptr<RemoteBoard>> join(int ranks, int rank, const std::string& host,
                                                   uint16_t port, Duration limit);

  Result<void> barrier() override;
  Result<void> others_are_well() override { return {}; }  // the transport itself will report it
  // Before this rank leaves with an error: the others' next barrier fails with its words.
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
