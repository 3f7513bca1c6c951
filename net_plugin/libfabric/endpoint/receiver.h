// Matches posted receives and messages. Thread rule: with the domain's lock held.
#pragma once

#include <vector>

#include "net_plugin/libfabric/endpoint/bulk_transfers.h"

namespace pacecar::fabric {

class Receiver {
 public:
  // `posted`: most receives of each kind, tagged and untagged.
  Receiver(EndpointState& state, BulkTransfers& bulk, size_t posted)
      : state_(state), bulk_(bulk), max_posted_(posted) {}

  // Each returns 0 or a negative fi_errno; -FI_EAGAIN: no room now.
  ssize_t post(bool with_tag, const Pattern& pattern, const Receive& receive);
  // FI_PEEK, FI_CLAIM and FI_DISCARD of tagged receives.
  ssize_t peek(const Pattern& pattern, const Receive& receive);
  ssize_t post_claimed(const Receive& receive);
  ssize_t cancel(void* context);

  FrameResult on_message(Peer& peer, const FrameView& view);  // A message or an offer of one.
  // Drops the peer's unexpected offers. Its eager messages can still be received.
  void forget_messages_of(const Peer& peer);
  // Whether a message of the peer, or a receive from it alone, waits.
  bool knows(const Peer& peer);
  // Whether further messages wait until receives are posted.
  bool is_full() const {
    return unexpected_bytes_ + frame_bytes(kEagerBytes) > kMaxUnexpectedBytes;
  }
  // The region is being closed: receives into its GPU memory fail.
  void forget(MemoryRegion& region);
  void fail_receives_from(const Peer& peer, int error, const std::string& why);

  // Least room in a buffer for several messages (FI_OPT_MIN_MULTI_RECV), in bytes.
  size_t min_multi_receive = 64;

 private:
  // An unexpected message: it matched no posted receive.
  struct Unexpected {
    Peer* peer = nullptr;
    Frame frame;
    std::vector<uint8_t> payload;
    FrameView view() const { return {frame, payload}; }
    // An offer of a lost peer, which the end of the turn drops.
    bool cannot_come() const { return frame.kind == FrameKind::kOffer && peer->is_lost(); }
  };
  using Messages = Matcher<Receive, Unexpected>;
  static constexpr size_t kMaxUnexpectedBytes = size_t{256} << 20;

  Receive take_receive(Messages& messages, Messages::Receives::iterator at, uint64_t length);
  Unexpected take_unexpected(Messages& messages, Messages::Messages::iterator at);
  void receive_message(Peer& peer, const FrameView& view, const Receive& receive);
  void receive_offered(Peer& peer, const FrameView& view, const Receive& receive,
                       PendingCompletion pending);
  void discard(const Unexpected& message);
  PendingCompletion completion_of(const Frame& frame, const Receive& receive, Peer& from) const;
  // `concerned(posted)`: whether the receive fails.
  template <typename Concerned>
  void fail_receives(Concerned concerned, int error, const std::string& why);

  EndpointState& state_;
  BulkTransfers& bulk_;
  const size_t max_posted_;
  Messages untagged_;
  Messages tagged_;
  size_t unexpected_bytes_ = 0;
};

}  // namespace pacecar::fabric
