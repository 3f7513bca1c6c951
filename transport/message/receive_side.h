// ReceiveSide: the receiving ends of connections. Answers offers, advertises buffers, and counts
// the writes that arrive. Pure; one thread. Memory is allocated only when a connection is made.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "transport/base/work_list.h"
#include "transport/message/connection_ends.h"
#include "transport/message/receive_queue.h"

namespace pacecar {

struct ReceiveEnd : ConnectionEnd {
  using Table = ReceiveTable;
  using PeerTable = SendTable;
  static constexpr uint32_t kSide = 1;

  ReceiveQueue queue;
  ReceiveTable* table = nullptr;
  uint64_t offered = 0;  // Offer::count
  uint32_t slot_writes_outstanding = 0;
  uint64_t slot_writes_done = 0;
  Instant advertise_at = Instant::never();  // at the latest; never: no unadvertised slot
  uint64_t completed_slots = 0;             // sent in our close word
  Instant close_due = Instant::never();     // of the wait for completions after the peer's close
};

class ReceiveSide final : public ConnectionEnds<ReceiveEnd> {
 public:
  struct Answered {
    ConnectionId connection = 0;
    std::vector<uint8_t> answer;
  };

  using ConnectionEnds::ConnectionEnds;

  // --- connections; see Messenger ---
  Result<Answered> open(std::span<const uint8_t> offer, Instant now);
  void close(ConnectionId connection, uint64_t completed_slots);
  void set_preposted(ConnectionId connection) { ends_[connection].preposted = true; }
  void withdraw(ConnectionId connection, Instant now) { release(ends_[connection], now); }
  void break_flow(MessageFlow& flow, MessageFailure failure, Instant now);

  bool receive(ConnectionId connection, MessageReceive& receive, Instant now);
  // Fails the connections whose buffers lie in this memory.
  void forget_memory(uint32_t key, Instant now);

  // --- lanes of a bonded connection ---
  bool write_note(ConnectionId connection, LaneNote note) override;
  LaneSight lane(ConnectionId connection) const override;
  void renew(ConnectionId connection, Instant now);
  const ReceiveQueue& queue(ConnectionId connection) const { return ends_[connection].queue; }

  // --- poll, part by part ---
  // A data write of `bytes` has arrived on this flow.
  void on_write(const MessageFlow& flow, const Immediate& immediate, Bytes bytes, Instant now);
  // Advertises new buffers that should not wait. `data_posted_to`: the peer to whom data has just
  // been posted, which gets its slots earlier; nullptr: none.
  void advertise(const NicIdentity* data_posted_to, Instant now);
  // When a buffer must be advertised at the latest.
  Instant next_advertising() const { return next_advertising_; }
  void on_slots_written(ConnectionId connection, bool ok, Instant now);
  void do_housekeeping(Instant now);

  // --- reports ---
  std::optional<Stall> stall(ConnectionId connection) const override;
  // Calls call(end, 0 writes, waits for the peer) for each connection with pending receives.
  template <typename Call>
  void for_waiting(Call call) const {
    for_attended([&call](const ReceiveEnd& end) {
      if (end.progress.waits()) call(end, 0, true);
    });
  }

 private:
  Result<MessageFlow*> flow_of(const Offer& offer, Instant now);
  void take_number(const MessageFlow& flow, const Offer& offer, Instant now);
  void on_arrival(ReceiveEnd& end, ReceiveQueue::Arrival arrival,
                  const ReceiveQueue::Progress& progress, Instant now);
  bool post_slots(ReceiveEnd& end, const ReceiveQueue::Run& run);
  void fail(ReceiveEnd& end, MessageFailure failure, Instant now);
  bool check_close(ReceiveEnd& end, Instant now);

  WorkList to_advertise_{config_.max_connections};  // with unadvertised slots
  Instant next_advertising_ = Instant::never();
};

}  // namespace pacecar
