// VerbsWorkId: a completion's queue pair, lane and operation, as the 64 bits that libibverbs
// returns. In completions with an error nothing else is reliable. Pure.
#pragma once

#include <cstdint>

#include "transport/nic/nic.h"
#include "transport/verbs/lane_ledger.h"

namespace pacecar {

struct VerbsWorkId {
  QueuePairId queue_pair = 0;  // 0: none, a shared receive request
  uint8_t lane = 0;
  bool receive = false;
  uint32_t sequence = 0;  // on the lane; of LaneLedger

  uint64_t pack() const {
    return uint64_t{queue_pair} << 32 | uint64_t{receive} << 31 | uint64_t{lane} << 24 | sequence;
  }
  static VerbsWorkId unpack(uint64_t id) {
    return {.queue_pair = static_cast<QueuePairId>(id >> 32),
            .lane = static_cast<uint8_t>(id >> 24 & 0x7F),
            .receive = (id >> 31 & 1) != 0,
            .sequence = static_cast<uint32_t>(id) & LaneLedger::kSequenceMask};
  }
};

}  // namespace pacecar
