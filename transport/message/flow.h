// A flow: all that one NIC sends to another. One demand, one grant, one congestion controller, one
// queue pair for data and one for control writes, however many connections use it.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/base/work_list.h"
#include "transport/message/control_words.h"
#include "transport/message/flow_status.h"
#include "transport/message/peer_watch.h"
#include "transport/nic/nic.h"

namespace pacecar {

// The connections of a flow, by the number in their immediates. The sender assigns the numbers, and
// reuses one when nothing of its last connection is outstanding; so a number always means the
// newest connection that has it. Pure; one thread. Memory grows only when a connection is added.
class FlowConnections {
 public:
  static constexpr uint32_t kNone = ~0U;

  bool full() const { return free_.empty() && connections_.size() == Immediate::kMaxConnections; }
  // At the sender: gives the connection a number. Not when full.
  uint32_t add(uint32_t connection) {
    if (free_.empty()) {
      connections_.push_back(connection);
      return static_cast<uint32_t>(connections_.size() - 1);
    }
    const uint32_t number = free_.back();
    free_.pop_back();
    connections_[number] = connection;
    return number;
  }
  void remove(uint32_t number) {
    connections_[number] = kNone;
    free_.push_back(number);
  }

  // At the receiver: a number that the sender has assigned, below Immediate::kMaxConnections.
  void put(uint32_t number, uint32_t connection) {
    if (number >= connections_.size()) connections_.resize(number + 1, kNone);
    connections_[number] = connection;
  }
  // At the receiver: removes the connection, unless its number has been reused.
  void take(uint32_t number, uint32_t connection) {
    if (connections_[number] == connection) connections_[number] = kNone;
  }

  // kNone: no connection has this number.
  uint32_t at(uint32_t number) const {
    return number < connections_.size() ? connections_[number] : kNone;
  }
  // By number, with kNone for free numbers.
  const std::vector<uint32_t>& all() const { return connections_; }

 private:
  std::vector<uint32_t> connections_;
  std::vector<uint32_t> free_;  // used by the sender only
};

struct MessageFlow : FlowFacts {
  FlowId id = 0;
  QueuePairId data = 0;
  QueuePairId control = 0;
  FlowEnd local;
  FlowEnd remote;
  MemoryRegion word_region;        // of the peer's word
  uint32_t words_outstanding = 0;  // our word writes at the NIC
  uint64_t word_posted = 0;        // the newest word write
  FlowConnections numbered;
  WorkList posting{0};     // sending: the numbers of connections with writes to post
  bool full = false;       // sending: the queue pair takes no further write until one is done
  bool active = false;     // a request is pending: the peer must be alive
  bool obeys = false;      // receiving: the sender takes our allocator's grants
  uint16_t epoch = 0;      // of the last grant to one that does not
  bool suspected = false;  // sending: no further connection shares it
  bool undecided = false;  // sending: something has changed since its limits were decided
  uint32_t writes = 0;     // sending: at the NIC
  Instant last_word;
  PeerWatch watch;
  Instant leave_at;
  FlowLimits limits;
  Controller* controller = nullptr;  // sending
  LimitMeter meter;                  // sending
  Stall stall;                       // of its connections, at the last housekeeping
  Stall reported;                    // the newest report; without connections when it is over
};

}  // namespace pacecar
