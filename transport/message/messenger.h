// Messenger: messages between NICs, over the flows of one NIC and the connections that share them.
// The same over every kind of Nic. Its parts own their state: ControlWrites, RateControl,
// FlowTable, SendSide and ReceiveSide. Messenger gives them their turns, and carries each
// completion of the NIC to the part that it belongs to. Pure: no clock, I/O or thread; memory is
// allocated only when flows and connections are made. Thread rule: one thread at a time.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "transport/message/control_writes.h"
#include "transport/message/flow_status.h"
#include "transport/message/flow_table.h"
#include "transport/message/lane.h"
#include "transport/message/messenger_config.h"
#include "transport/message/rate_control.h"
#include "transport/message/receive_side.h"
#include "transport/message/send_side.h"
#include "transport/nic/nic.h"

namespace pacecar {

// What the congestion control has set for the flow that was used last.
struct FlowReport {
  uint64_t flows = 0;
  TrafficHint hint;  // of the allocator
  uint32_t weight = 0;
  FlowLimits limits;
  Duration rtt;
};

class Messenger {
 public:
  static constexpr uint32_t kMaxConnections = 1U << 16;

  // Errors: kInvalidArgument for an unknown congestion control, constant or allocator; kUnavailable
  // when the NIC's memory regions are used up. `nic` outlives the messenger.
  static Result<std::unique_ptr<Messenger>> create(Nic& nic, const MessengerConfig& config,
                                                   Instant now);
  ~Messenger();
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;

  // --- making connections; the bootstrap carries offer and answer ---
  using Offered = SendSide::Offered;
  using Answered = ReceiveSide::Answered;
  using Role = ConnectionRole;
  // A flow has the largest weight of its connections; 0: MessengerConfig::weight.
  // Errors: kUnavailable (connections, flows or queue pairs used up).
  Result<Offered> open_send(const NicIdentity& peer, Instant now, uint32_t weight = 0,
                            Role role = Role::kWhole);
  // Errors: kPeer for a malformed answer; kStale when the connection's flow has ended.
  Result<void> finish_send(ConnectionId connection, std::span<const uint8_t> answer, Instant now) {
    return sends_.finish(connection, answer, now);
  }
  // Errors: kUnavailable as above; kPeer for a malformed offer; kStale for a flow that has ended.
  Result<Answered> open_receive(std::span<const uint8_t> offer, Instant now);
  // The answer of open_receive() is not sent: the same offer may be opened again.
  void withdraw_receive(ConnectionId connection, Instant now) {
    receives_.withdraw(connection, now);
  }
  // As ReceiveConnection::set_preposted.
  void set_preposted(ConnectionId connection) { receives_.set_preposted(connection); }
  // An offer has failed with this error. True: its flow is the reason. The flow has broken or, if
  // another connection made it, has ended at the peer (kStale). No further connection shares it,
  // and an offer over another flow may succeed.
  bool suspect_flow(ConnectionId sender, ErrorCode failure, Instant now);

  // Whether a closed connection still holds its place, until its peer has closed, too.
  bool releasing_sends() const { return sends_.releasing(); }
  bool releasing_receives() const { return receives_.releasing(); }

  // Requests of a closed connection are dropped, and the call does not wait for the peer. Sends
  // that are done for the application still reach the peer, unless other sends were pending.
  void close_send(ConnectionId connection, Instant now) { sends_.close(connection, now); }
  void close_receive(ConnectionId connection) {
    close_receive(connection, receives(connection).completed_slots());
  }
  // Tells the peer that all messages below this slot are complete, whatever this lane received.
  void close_receive(ConnectionId connection, uint64_t completed_slots) {
    receives_.close(connection, completed_slots);
  }

  // --- messages, and puts on connections for them; false: full, try again later ---
  bool send(ConnectionId connection, MessageSend& send) { return sends_.send(connection, send); }
  bool receive(ConnectionId connection, MessageReceive& receive, Instant now) {
    return receives_.receive(connection, receive, now);
  }
  // Fails the requests that would still use this memory. The caller deregisters it afterwards.
  void forget_memory(uint32_t key);
  // For the allocator. A hint of more peers than the NIC has flows counts as unknown.
  void hint(const TrafficHint& hint, Instant now) { rates_.hint(hint, now); }

  // --- their ends, and lanes of bonded connections ---
  Lanes& lanes(Direction direction) {
    return direction == Direction::kSend ? static_cast<Lanes&>(sends_) : receives_;
  }
  // The completed slots in the peer's close word.
  uint64_t completed_by_peer(ConnectionId sender) const { return sends_.completed_by_peer(sender); }
  // While held, nothing more is posted to the NIC.
  void hold_sends(ConnectionId sender, bool held) { sends_.hold(sender, held); }
  // Drops all sends and continues with that slot. Only while held, without writes at the NIC.
  void renew_sends(ConnectionId sender, uint64_t next_slot) { sends_.renew(sender, next_slot); }
  // Drops all receives; slot numbers continue. Only when the sender holds its sends.
  void renew_receives(ConnectionId receiver, Instant now) { receives_.renew(receiver, now); }
  const ReceiveQueue& receives(ConnectionId receiver) const { return receives_.queue(receiver); }
  // Takes the NIC's completions, then breaks the flow: nothing more is taken on its connections.
  void break_flow(Direction direction, ConnectionId connection) {
    break_now(direction == Direction::kSend ? sends_.flow(connection).id
                                            : receives_.flow(connection).id);
  }

  // Takes completions, signals and words from the NIC, and posts messages to it.
  void poll(Instant now);
  // The part of poll() that a receiver waits for; true if a message has completed.
  bool finish_receives(Instant now);
  // The part of poll() that a sender waits for: submitted sends are posted to the NIC. If no sender
  // has posted more than a packet, the next poll updates demand and limits.
  void post_submitted_sends(Instant now);
  // After poll(): posts control writes (CTS slots, grants, demands), and does housekeeping.
  void post_control_writes(Instant now);
  Instant next_deadline() const;  // When poll has something to do even if nothing arrives.
  // All control writes have reached their peers or never will: the NIC may be destroyed.
  bool drained() const { return sends_.drained() && receives_.drained(); }

  const MessengerCounters& counters() const { return counters_; }
  FlowReport report() const;
  std::vector<FlowStatus> flow_statuses(Instant now) const;
  // Why the flow of this sending connection has its rate.
  Explanation explain(ConnectionId sender) const {
    return rates_.explain(sends_.flow(sender), now_);
  }
  // Smoothed, of this sending connection's flow; 0: unknown.
  Duration rtt(ConnectionId sender) const { return sends_.flow(sender).rtt; }
  // Acknowledged payload of this sending connection's flow, ever.
  Bytes acknowledged_bytes(ConnectionId sender) const { return sends_.flow(sender).stats.acked; }
  // Counts reports of stalls and changes of paths: when it changes, take both.
  uint64_t report_changes() const { return flows_.stall_reports() + rates_.path_changes(); }
  std::vector<StallReport> take_stalls() { return flows_.take_stalls(); }
  // Flows whose FlowFacts::path_mtu has changed since the last call.
  std::vector<FlowFacts> take_changed_paths() { return rates_.take_changed_paths(); }
  // Memory of a sending flow with its two queue pairs; a receiving flow takes no more.
  QueuePairMemory flow_memory() const { return flows_.flow_memory(); }

 private:
  Messenger(Nic& nic, const MessengerConfig& config, CongestionControl congestion_control,
            Instant now);

  void poll_completions(Instant now);
  void on_sent(const Completion& completion, Instant now);
  void on_received(const Completion& completion, Instant now);
  void on_broken(const Completion& completion, Instant now);
  void poll_words(Instant now);
  bool memory_changed();
  void note_waiting(Instant now);
  bool housekeeping_due() const;
  void do_housekeeping(Instant now);
  void watch_peers(Instant now);
  void break_flow(MessageFlow& flow, Instant now);
  void break_now(FlowId id);

  Nic& nic_;
  const MessengerConfig config_;
  MessengerCounters counters_;
  Instant now_;  // of the last poll
  ControlWrites control_;
  RateControl rates_;
  FlowTable flows_;
  SendSide sends_;
  ReceiveSide receives_;
  Instant last_change_;    // when a peer's write was last seen, or first awaited
  bool awaiting_ = false;  // a control write that does not wake the engine
  Instant next_housekeeping_;
  uint64_t silent_packets_seen_ = 0;
  bool look_ = true;  // poll memory that peers write, whatever the NIC has counted
  std::array<Completion, 64> completions_;  // a member so that no poll has to make it
};

}  // namespace pacecar
