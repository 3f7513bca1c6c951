// Gets the bytes that a peer offers, or that a large read asks for: from the peer's memory where
// that can be read, else by a clear-to-send, after which the peer puts them.
// Thread rule: with the domain's lock held.
#pragma once

#include "net_plugin/libfabric/endpoint/endpoint_state.h"

namespace pacecar::fabric {

class Fetcher {
 public:
  explicit Fetcher(EndpointState& state) : state_(state) {}

  // `operation` is the receive of that offer, or the write that it offers.
  void fetch(Operation& operation, const FrameView& offer);
  // The target's reply to our large read.
  void on_direct_reply(Operation& operation, const FrameView& reply);
  // All puts after a clear-to-send are done.
  FrameResult on_placed(const Peer& peer, const Frame& frame);
  // Reads from the peer's memory, for a limited time.
  void continue_direct_reads(Peer& peer);

 private:
  void start_direct_read(Operation& operation);
  void finish_direct_read(Operation& operation, bool whole);
  void clear_to_send(Operation& operation);
  void on_all_bytes(Operation& operation);

  EndpointState& state_;
};

}  // namespace pacecar::fabric
