// Serves the writes, reads and atomics of peers on registered memory. Key, bounds and access are
// checked; a refusal is replied.
// Thread rule: with the domain's lock held.
#pragma once

#include "net_plugin/libfabric/endpoint/fetcher.h"

namespace pacecar::fabric {

class Target {
 public:
  Target(EndpointState& state, Fetcher& fetcher) : state_(state), fetcher_(fetcher) {}

  // A write, an offer of a write, a read or an atomic.
  FrameResult on_request(Peer& peer, const FrameView& view);
  // The region is being closed.
  void forget(const MemoryRegion& region);

 private:
  struct Range {
    Status status = Status::kOk;
    Local memory;

    MemoryRegion& region() const { return *memory.regions[0]; }
  };

  Range resolve(const Frame& request) const;
  // Each returns the status to reply; nullopt: the reply is sent, or follows later.
  std::optional<Status> write(Peer& peer, const FrameView& view, const Range& range);
  std::optional<Status> accept_offer(Peer& peer, const FrameView& view, const Range& range);
  std::optional<Status> read(Peer& peer, const FrameView& view, const Range& range);
  std::optional<Status> apply(Peer& peer, const FrameView& view, const Range& range);
  void reply_with_segments(Peer& peer, const Frame& request, const Local& memory);

  EndpointState& state_;
  Fetcher& fetcher_;
};

}  // namespace pacecar::fabric
