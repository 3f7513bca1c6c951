// The flows of this process, one for each peer's address, under one congestion control. Queue pairs
// join the flow of their peer; the NIC applies its limits, and reports signals.
// No peer grants rates, as programs of verbs exchange only queue pair numbers: each flow follows
// its sender's signals and link. Thread rule: one thread at a time. Time is an argument.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "cc/controller_set.h"
#include "transport/base/params.h"
#include "transport/base/result.h"
#include "transport/base/work_list.h"
#include "transport/nic/nic.h"

namespace pacecar::ibverbs {

class Flows {
 public:
  // Errors: kInvalidArgument (no such congestion control, or one that needs its receiver).
  static Result<std::unique_ptr<Flows>> make(const Params& params, NicQueuePairs& nic,
                                             Rate first_rate, HostLink* link);

  // The flow to the peer, for one more queue pair. Errors: kUnavailable.
  Result<FlowId> join(const std::array<uint8_t, 16>& peer, Instant now);
  void leave(FlowId id, Instant now);
  void on_posted(FlowId id, Bytes bytes);
  void poll(Instant now);  // Takes the NIC's signals, and applies new limits.
  Instant next_deadline() const { return controllers_->next_deadline(); }

 private:
  struct Flow {
    std::array<uint8_t, 16> peer{};
    uint32_t users = 0;  // queue pairs
    Controller* controller = nullptr;
    FlowStats stats;
    FlowLimits limits;
  };

  Flows(NicQueuePairs& nic, std::unique_ptr<ControllerSet> controllers);
  void update(FlowId id, Instant now);

  NicQueuePairs& nic_;
  std::unique_ptr<ControllerSet> controllers_;
  std::vector<Flow> flows_;  // those without users are free
  WorkList changed_;
};

}  // namespace pacecar::ibverbs
