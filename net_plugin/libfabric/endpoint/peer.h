// A peer: its connections, and what waits for them. Thread rule: with the domain's lock held.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "net_plugin/libfabric/core/matcher.h"
#include "net_plugin/libfabric/endpoint/operation.h"
#include "net_plugin/libfabric/link/connections.h"
#include "net_plugin/libfabric/link/endpoint_bootstrap.h"

namespace pacecar::fabric {

// Frames from a peer, over one of its connections or through memory.
struct IncomingStream {
  std::unique_ptr<FrameSource> source;
  std::optional<FrameReader> reading;  // rest of the oldest message
};

// That a peer is lost, until the endpoint fails it (Endpoint::fail_lost_peers).
struct Failure {
  enum class When : uint8_t {
    kDrained,   // when its earlier frames are received
    kSendsNow,  // as kDrained, but sends to it fail at once
    kClosed,    // as kSendsNow, without a warning: it has closed its endpoint
    kNow,       // at the end of the turn
  };
  When when = When::kDrained;
  int error = 0;  // a fi_errno
  std::string why;
  Duration lasted;
};

struct Peer {
  Domain* domain = nullptr;
  bool free = false;  // a place for another peer
  PeerId number = 0;
  Address name;
  Token token{};                                     // the peer sends it in kHello
  uint64_t instance = 0;                             // of the peer's endpoint; 0: no greeting yet
  std::vector<EndpointBootstrap::CallId> tcp_calls;  // open ones, in either direction
  std::unique_ptr<Connecting> connecting;
  Token remote_token{};
  std::unique_ptr<SharedSender> shared_sender;  // until the outbox is open
  std::unique_ptr<Outbox> outbox;
  std::optional<PeerMemory> memory;  // if we can read it
  bool reports_reading = false;      // its kHello says that it can read our memory
  IncomingStream frames;
  IncomingStream placed;  // frames after the peer's puts
  IncomingStream shared;  // through memory
  Handle remote_listener;
  std::unique_ptr<Connecting> connecting_puts;
  std::unique_ptr<PutBox> puts;                    // opened for the first put
  std::deque<PendingCompletion> held_completions;  // until the connection is open
  std::deque<uint64_t> queued_puts;   // operations whose puts wait for the connection or room
  std::deque<uint64_t> queued_reads;  // reads that wait for room or for its connection to us
  std::deque<uint64_t> direct_reads;  // operations that read its memory
  uint64_t reading = 0;               // bytes of eager reads that it has not replied to
  uint32_t serving = 0;               // outstanding kServeRead and kServeWrite for it
  std::optional<Failure> failure;
  fi_addr_t source = FI_ADDR_NOTAVAIL;  // its number in that version of the address vector
  uint64_t source_version = ~uint64_t{0};

  // Believed only of a process on this host, whose memory we can read, too.
  bool reads_our_memory() const { return reports_reading && memory; }
  bool has_unread_frames() const;  // Frames that have arrived and are not handled yet.
  bool sends_fail() const { return failure && failure->when >= Failure::When::kSendsNow; }
  bool has_closed() const { return failure && failure->when == Failure::When::kClosed; }
  bool can_send() const { return outbox->is_open() && !sends_fail(); }
  // It has our greeting, so it connects to our listener.
  bool connects_to_us() const { return instance != 0 && !tcp_calls.empty() && !frames.source; }
  // It has been failed, or was never called, and no reply to it is outstanding.
  bool is_gone() const { return instance == 0 && tcp_calls.empty() && serving == 0 && !failure; }
  bool is_flushed() const;  // Whether all that can be sent to it is sent.

  // It will be failed; a failure that comes earlier takes the place of a later one.
  void fail(Failure::When when, int error, const std::string& why);
  bool is_lost() const { return failure && failure->when >= Failure::When::kNow; }
  void cannot_send(const Error& why) {
    fail(Failure::When::kSendsNow, fi_error(why.code), why.message);
  }

  // Whether a frame with this payload can be added to the outbox, after progress if need be.
  bool make_room(size_t payload);
  void start_sending(Outbox::Coming coming);
  // Sends a reply, or fails the peer if it takes none.
  void reply(Frame frame, std::span<const uint8_t> payload = {});
  void reply_status(uint64_t id, Status status);
};

}  // namespace pacecar::fabric
