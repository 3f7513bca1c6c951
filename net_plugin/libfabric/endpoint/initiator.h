// Starts sends, writes, reads and atomics. Thread rule: with the domain's lock held.
#pragma once

#include "net_plugin/libfabric/endpoint/bulk_transfers.h"

namespace pacecar::fabric {

class Initiator {
 public:
  // `most`: operations that are outstanding at a time.
  Initiator(EndpointState& state, BulkTransfers& bulk, size_t most)
      : state_(state), bulk_(bulk), max_initiated_(most) {}

  // Whether an operation can begin, after progress if need be.
  bool make_room(const OperationRequest& request, const Peer& peer);
  // Requires make_room(). Returns 0 or a negative fi_errno; -FI_EAGAIN: no room now.
  ssize_t start(const OperationRequest& request, Peer& peer);
  // Read requests that wait for room, or for the peer's connection to us.
  void start_queued_reads(Peer& peer);

  FrameResult on_clear_to_send(Peer& peer, const FrameView& view);
  FrameResult on_done(Peer& peer, const FrameView& view);

 private:
  bool is_full(const Peer& peer) const;
  bool overtakes_read(const OperationRequest& request, const Peer& peer);
  ssize_t start_from_host(const OperationRequest& request, Peer& peer);
  ssize_t start_eagerly(const OperationRequest& request, Peer& peer);
  ssize_t start_offered(const OperationRequest& request, Peer& peer);
  ssize_t start_read(const OperationRequest& request, Peer& peer);
  ssize_t start_atomic(const OperationRequest& request, Peer& peer);
  PendingCompletion completion_for(const OperationRequest& request) const;

  EndpointState& state_;
  BulkTransfers& bulk_;
  const size_t max_initiated_;
};

}  // namespace pacecar::fabric
