#include "transport/verbs/lane_ledger.h"

#include <fmt/format.h>

namespace pacecar {

Result<LaneAccount::Settled> LaneAccount::settle(uint64_t peer_received, WorkQueue& work) {
  uint64_t most = confirmed_;
  for (size_t i = 0; i < unsettled_.size(); ++i) most += notifies(unsettled_[i]) ? 1 : 0;
  if (peer_received < confirmed_ || peer_received > most) {
    return fail(
        ErrorCode::kPeer,
        fmt::format("the peer reports that {} writes have arrived on a lane, and it is {} to {}",
                    peer_received, confirmed_, most));
  }
  uint64_t covered = peer_received - confirmed_;  // of unsettled_, and all before them
  Settled settled;
  for (; !unsettled_.empty(); unsettled_.pop_front()) {
    const LaneLedger::Entry& entry = unsettled_.front();
    // The response to a read may have been lost.
    if (covered > 0 && entry.opcode != Opcode::kRead) {
      work.finish(entry.number, CompletionStatus::kOk);
      ++settled.arrived;
      settled.arrived_bytes += entry.bytes;
    } else {
      work.put_back(entry.number);
      ++settled.put_back;
    }
    if (covered > 0 && notifies(entry)) --covered;
  }
  received_ = 0;
  confirmed_ = 0;
  return settled;
}

void LaneAccount::abandon(WorkQueue& work) {
  for (; !unsettled_.empty(); unsettled_.pop_front()) work.abandon(unsettled_.front().number);
}

}  // namespace pacecar
