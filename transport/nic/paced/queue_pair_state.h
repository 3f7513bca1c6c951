// QueuePairState: what NICs made of others, or of a device, have of a queue pair. One owner.
#pragma once

#include <cstdint>
#include <string>

#include "transport/nic/paced/work_queue.h"

namespace pacecar {

struct QueuePairState {
  enum class State : uint8_t {
    kCreated,
    kConnected,
    kBroken,
    kLeaving,  // destroyed by its user; stays until the peer writes no more
  };

  QueuePairState(QueuePairId number, const QueuePairConfig& wanted)
      : id(number), config(wanted), work(wanted.work_requests) {}

  // The next completion, in the order of posting; last kBroken if it is broken. False: none now.
  bool pop_completion(Completion* completion);

  bool connected() const { return state == State::kConnected; }
  bool leaving() const { return state == State::kLeaving; }

  const QueuePairId id;
  const QueuePairConfig config;
  State state = State::kCreated;
  CompletionStatus broken_by = CompletionStatus::kOk;
  bool broken_reported = false;
  std::string fault;  // what broke it, for people
  std::string peer;   // the peer's address, for people
  WorkQueue work;
  uint32_t started = 0;  // work requests at the device
};

}  // namespace pacecar
