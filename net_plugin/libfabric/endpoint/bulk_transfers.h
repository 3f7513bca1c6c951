// Moves the bytes of large operations. Bytes that a peer offers, or that our large read asks for,
// are read from its memory where that is possible; else a clear-to-send lets it put them. Bytes
// that we offer, or that its large read asks for, we put. Thread rule: with the domain's lock held.
#pragma once

#include "net_plugin/libfabric/endpoint/endpoint_state.h"

namespace pacecar::fabric {

class BulkTransfers {
 public:
  explicit BulkTransfers(EndpointState& state) : state_(state) {}

  // `operation` is the receive of that offer, or the write that it offers.
  void fetch(Operation& operation, const FrameView& offer);
  // The target's reply to our large read.
  void on_direct_reply(Operation& operation, const FrameView& reply);
  // All puts after a clear-to-send are done.
  FrameResult on_placed(const Peer& peer, const Frame& frame);
  void continue_direct_reads(Peer& peer);  // Reads from the peer's memory, for a limited time.

  // Puts of queued_puts, as far as there is room. The first opens the peer's connection for puts.
  void start_queued_puts(Peer& peer);
  Result<void> finish_puts(Peer& peer);  // Ends operations whose puts are done. Errors: kPeer.

 private:
  void start_direct_read(Operation& operation);
  void finish_direct_read(Operation& operation, bool whole);
  void clear_to_send(Operation& operation);
  void on_all_bytes(Operation& operation);
  void put_all(Operation& operation);

  EndpointState& state_;
};

}  // namespace pacecar::fabric
