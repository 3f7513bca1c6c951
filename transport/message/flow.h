// A flow: all that one NIC sends to another. One demand, one grant, one congestion controller, one
// queue pair for data and one for control writes, however many connections use it.
#pragma once

#include "transport/base/work_list.h"
#include "transport/message/flow_connections.h"
#include "transport/message/flow_status.h"
#include "transport/message/peer_watch.h"
#include "transport/nic/nic.h"

namespace pacecar {

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
