// FlowTable: the flows of one NIC, from the first connection to the last. Makes and ends their
// queue pairs. Pure; one thread. Memory is allocated only when flows are made.
#pragma once

#include <array>
#include <bit>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/message/control_writes.h"
#include "transport/message/flow.h"
#include "transport/message/messenger_config.h"
#include "transport/message/places.h"
#include "transport/message/rate_control.h"
#include "transport/nic/nic.h"

namespace pacecar {

class FlowTable {
 public:
  // The references outlive it.
  FlowTable(Nic& nic, const MessengerConfig& config, ControlWrites& control, RateControl& rates);
  // Ends all queue pairs: until then peers write into our words and tables. The last call.
  void stop();

  // Errors: kUnavailable when flows, queue pairs or memory regions are used up.
  Result<MessageFlow*> make(bool sending, const NicIdentity& peer, uint64_t number);
  // Connects a new flow to the peer's end. Errors: as Nic::connect_queue_pair.
  Result<void> join(MessageFlow& flow, const FlowEnd& remote, Instant now);
  // One of its connections is released. With the last one the flow leaves.
  void release(MessageFlow& flow, Instant now);
  // Ends its queue pairs; nothing more arrives. The caller fails its connections.
  void end(MessageFlow& flow);
  void remove(MessageFlow& flow, Instant now);

  // nullptr: there is none. A sender finds a flow for a new connection by its peer alone, a
  // receiver the flow of an offer by its number.
  MessageFlow* find_shareable(const NicIdentity& receiver) const;
  MessageFlow* find(const NicIdentity& sender, uint64_t number) const;
  MessageFlow* of(QueuePairId queue_pair) const;
  const Places<MessageFlow>& all() const { return flows_; }
  const std::vector<FlowId>& ids() const { return ids_; }

  // Before housekeeping of the connections, which mark their flows as active, and after it.
  void begin_housekeeping();
  void do_housekeeping(Instant now);
  bool housekeeping_due() const { return housekeeping_due_; }
  std::vector<StallReport> take_stalls() { return std::exchange(stalls_, {}); }
  uint64_t stall_reports() const { return stall_reports_; }

  // Memory of a sending flow with its two queue pairs; a receiving flow takes no more.
  QueuePairMemory flow_memory() const;

 private:
  struct IdentityHash {  // identities are random
    size_t operator()(const NicIdentity& identity) const {
      const auto halves = std::bit_cast<std::array<uint64_t, 2>>(identity);
      return halves[0] ^ halves[1];
    }
  };

  template <typename Fits>
  MessageFlow* find_if(const NicIdentity& peer, Fits fits) const;
  void destroy_queue_pairs(const MessageFlow& flow);
  bool do_housekeeping(MessageFlow& flow, Instant now);
  void report_stall(MessageFlow& flow);

  Nic& nic_;
  const MessengerConfig& config_;
  ControlWrites& control_;
  RateControl& rates_;
  Places<MessageFlow> flows_;  // by FlowId
  std::vector<FlowId> ids_;
  std::unordered_map<QueuePairId, FlowId> by_queue_pair_;
  std::unordered_multimap<NicIdentity, FlowId, IdentityHash> by_peer_;
  bool housekeeping_due_ = false;
  std::vector<StallReport> stalls_;
  uint64_t stall_reports_ = 0;
};

}  // namespace pacecar
