// SendSide: the sending ends of connections. Offers connections, matches sends with the receivers'
// buffers, and posts data writes. Pure; one thread. Allocates only when a connection is made.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "transport/base/work_list.h"
#include "transport/message/connection_ends.h"
#include "transport/message/send_queue.h"

namespace pacecar {

struct SendEnd : ConnectionEnd {
  using Table = SendTable;
  using PeerTable = ReceiveTable;
  static constexpr uint32_t kSide = 0;

  SendQueue queue;
  SendTable* table = nullptr;
  uint32_t eager = 0;    // bytes of the largest eager message that was offered
  uint64_t wanted = 0;   // slots asked for by the wanted word
  bool shares = false;   // uses a flow that another connection made
  bool open = false;     // the answer has arrived
  bool held = false;     // by the layer above
  bool lingers = false;  // closed; copies of sends that are done for the application are
                         // outstanding

  bool awaits_buffer() const { return queue.outstanding() == 0 && queue.waiting(); }
};

class SendSide final : public ConnectionEnds<SendEnd> {
 public:
  struct Offered {
    ConnectionId connection = 0;
    std::vector<uint8_t> offer;
  };

  using ConnectionEnds::ConnectionEnds;

  // --- connections; see Messenger ---
  Result<Offered> open(const NicIdentity& peer, Instant now, uint32_t weight, ConnectionRole role);
  Result<void> finish(ConnectionId connection, std::span<const uint8_t> answer, Instant now);
  bool suspect_flow(ConnectionId connection, ErrorCode failure);
  void close(ConnectionId connection, Instant now);
  void break_flow(MessageFlow& flow, MessageFailure failure);

  bool send(ConnectionId connection, MessageSend& send);
  void forget_memory(uint32_t key);  // Fails the sends that would still read this memory.

  // --- lanes of a bonded connection ---
  bool write_note(ConnectionId connection, LaneNote note) override;
  LaneSight lane(ConnectionId connection) const override;
  uint64_t completed_by_peer(ConnectionId connection) const;
  void hold(ConnectionId connection, bool held);
  void renew(ConnectionId connection, uint64_t next_slot);

  // --- poll, part by part ---
  // Matches sends with buffers that are known by now. True: a slot carried a new grant.
  bool match(Instant now);
  // Posts matched sends to the NIC; returns the most bytes that one connection has posted.
  Bytes post();
  void on_write_done(ConnectionId connection, uint32_t send, CompletionStatus status);
  void do_housekeeping(Instant now);
  bool waiting() const { return !matching_.empty(); }
  // match() may succeed although no peer has written. Asking resets it.
  bool take_match_due() { return std::exchange(match_due_, false); }
  // The last post() has left writes for which there was room.
  bool more_to_post() const { return more_to_post_; }
  // The peer to whom the last post() has posted last; nullptr: none.
  const NicIdentity* data_posted_to() const { return data_posted_to_; }

  // --- reports ---
  std::optional<Stall> stall(ConnectionId connection) const override;
  // Calls call(end, writes at the NIC, waits for the peer) for each connection with pending sends.
  template <typename Call>
  void for_waiting(Call call) const {
    for_attended([&call](const SendEnd& end) {
      if (end.progress.waits()) call(end, end.queue.outstanding(), end.awaits_buffer());
    });
  }

 private:
  Bytes post_writes(SendEnd& end);
  void post_later(const SendEnd& end);
  void list(const MessageFlow& flow);
  void want_slots(SendEnd& end);
  void fail(SendEnd& end, MessageFailure failure);
  void send_close(SendEnd& end);

  WorkList matching_{config_.max_connections};  // with sends that wait for a buffer
  WorkList posting_{nic_.caps().flows};         // flows with writes to post
  uint64_t next_flow_number_ = config_.first_flow_number;
  uint64_t offers_ = 0;
  bool match_due_ = false;
  bool more_to_post_ = false;
  const NicIdentity* data_posted_to_ = nullptr;
};

}  // namespace pacecar
