// ReceiveSide: the receiving ends of connections. Answers offers, advertises buffers, and counts
// the writes that arrive.
//
// Pure; one thread. Memory is allocated only when a connection is made.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "transport/base/work_list.h"
#include "transport/message/connection_ends.h"
#include "transport/message/receive_queue.h"

namespace pacecar {

class ReceiveSide {
 public:
  struct Answered {
    ConnectionId connection = 0;
    std::vector<uint8_t> answer;
  };

  // The references outlive it.
  ReceiveSide(Nic& nic, const MessengerConfig& config, MessengerCounters& counters,
              ControlWrites& control, RateControl& rates, FlowTable& flows);

  // --- connections; see Messenger ---
  Result<Answered> open(std::span<const uint8_t> offer, Instant now);
  void close(ConnectionId connection, uint64_t completed_slots);
  // Ends the flow, and fails its connections.
  void break_flow(MessageFlow& flow, MessageFailure failure, Instant now);
  bool releasing() const { return ends_.releasing(); }
  bool drained() const { return ends_.drained(); }

  bool receive(ConnectionId connection, const ReceiveOperation& operation, Instant now);
  // Fails the connections whose buffers lie in this memory.
  void forget_memory(uint32_t key, Instant now);

  // --- lanes of a bonded connection ---
  const NoteWords& peer_note(ConnectionId connection) const;
  bool write_note(ConnectionId connection, const LaneNote& note);
  LaneSight lane(ConnectionId connection) const;
  void renew(ConnectionId connection, Instant now);
  const ReceiveQueue& queue(ConnectionId connection) const { return ends_[connection].queue; }

  // --- poll, part by part ---
  // A data write of `bytes` has arrived on this flow.
  void on_write(const MessageFlow& flow, const Immediate& immediate, Bytes bytes, Instant now);
  // Advertises new buffers that should not wait. The peer to whom data has just been posted gets
  // its slots earlier; nullptr: nobody.
  void advertise(const NicIdentity* data_posted_to, Instant now);
  // When a buffer must be advertised at the latest.
  Instant next_advertising() const { return next_advertising_; }
  void on_slots_written(ConnectionId connection, bool ok, Instant now);
  void on_close_sent(ConnectionId connection, bool ok) { ends_.on_close_sent(connection, ok); }
  void on_note_done(ConnectionId connection, bool ok) { ends_.on_note_done(connection, ok); }
  void do_housekeeping(Instant now);
  bool housekeeping_due() const { return ends_.housekeeping_due(); }

  // --- reports ---
  const MessageFlow& flow(ConnectionId connection) const { return *ends_[connection].flow; }
  std::optional<Stall> stall(ConnectionId connection, Instant now) const;
  uint64_t stall_changes() const { return ends_.stall_changes(); }
  // Calls call(end, 0 writes, waits for the peer) for each connection with pending receives.
  template <typename Call>
  void for_waiting(Call call) const {
    ends_.for_attended([&call](const End& end) {
      if (end.progress.waits()) call(end, 0, true);
    });
  }

 private:
  struct End : ConnectionEnd {
    using Table = ReceiveTable;
    using PeerTable = SendTable;
    static constexpr uint32_t kSide = 1;
    explicit End(bool strict) : queue(strict) {}

    ReceiveQueue queue;
    ReceiveTable* table = nullptr;
    uint64_t offered = 0;  // Offer::count
    uint32_t slot_writes_outstanding = 0;
    uint64_t slot_writes_done = 0;
    Instant advertise_at = Instant::never();  // at the latest; never: no unadvertised slot
    uint64_t completed_slots = 0;             // sent in our close word
    Instant close_due = Instant::never();     // of the wait for completions after the peer's close
  };

  Result<MessageFlow*> flow_of(const Offer& offer, Instant now);
  void take_number(const MessageFlow& flow, const Offer& offer, Instant now);
  void on_arrival(End& end, ReceiveQueue::Arrival arrival, const ReceiveQueue::Progress& progress,
                  Instant now);
  bool post_slots(End& end, const ReceiveQueue::Run& run);
  void fail(End& end, MessageFailure failure, Instant now);
  bool look_for_close(End& end, Instant now);
  bool do_housekeeping(End& end, Instant now);

  const MessengerConfig& config_;
  MessengerCounters& counters_;
  ControlWrites& control_;
  RateControl& rates_;
  FlowTable& flows_;
  ConnectionEnds<End> ends_;
  WorkList to_advertise_;  // with unadvertised slots
  Instant next_advertising_ = Instant::never();
};

}  // namespace pacecar
