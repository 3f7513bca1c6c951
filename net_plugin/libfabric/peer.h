// A peer of an endpoint: its connections, and what waits for them.
// Thread rule: with the domain's lock held.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net_plugin/libfabric/core/matcher.h"
#include "net_plugin/libfabric/link/connections.h"
#include "net_plugin/libfabric/link/endpoint_bootstrap.h"
#include "net_plugin/libfabric/operation.h"

namespace pacecar::fabric {

struct IncomingStream {
  std::unique_ptr<FrameSource> source;
  std::optional<FrameReader> reading;  // rest of the oldest message
};

// The failure of a peer, delayed until what it sent before is received.
struct DelayedFailure {
  int error = 0;
  std::string why;
  bool sends_fail = false;                      // at once
  EndpointBootstrap::Clock::duration lasted{};  // since then
};

struct Peer {
  PeerId number = 0;
  Address name;
  Address other_name;                                // as in its greeting, if it differs
  Token token{};                                     // the peer sends it in kHello
  uint64_t instance = 0;                             // of the peer's endpoint; 0: no greeting yet
  std::vector<EndpointBootstrap::CallId> tcp_calls;  // open ones, in either direction
  bool tcp_connecting = false;
  std::unique_ptr<Connecting> connecting;
  Token remote_token{};
  std::unique_ptr<SharedSender> shared_sender;  // until the outbox is open
  std::unique_ptr<Outbox> outbox;
  std::optional<PeerMemory> memory;  // if we can read it
  bool reports_reading = false;      // its kHello says that it can read our memory
  // Believed only of a process on this host, whose memory we can read, too.
  bool reads_our_memory() const { return reports_reading && memory; }
  IncomingStream frames;
  IncomingStream placed;  // frames after the peer's puts
  IncomingStream shared;  // through memory
  Handle remote_listener;
  std::unique_ptr<Connecting> connecting_puts;
  std::unique_ptr<PutBox> puts;                    // opened for the first put
  std::deque<PendingCompletion> held_completions;  // until the connection is open
  std::deque<uint64_t> queued_puts;   // operations whose puts wait for the connection or room
  std::deque<uint64_t> queued_reads;  // read requests, likewise
  std::deque<uint64_t> direct_reads;  // operations that read its memory
  uint32_t serving = 0;               // outstanding kServeRead and kServeWrite for it
  bool closed_by_peer = false;        // kBye
  std::optional<DelayedFailure> failure;
  bool sends_fail() const { return failure && failure->sends_fail; }
  // Frames that have arrived and are not handled yet.
  bool has_unread_frames() const;
  bool can_send() const { return outbox->is_open() && !sends_fail(); }
  uint64_t source = FI_ADDR_NOTAVAIL;
  uint64_t source_version = ~uint64_t{0};
};

// An unexpected message: it matched no posted receive.
struct Unexpected {
  Peer* peer = nullptr;
  Frame frame;
  std::vector<uint8_t> payload;
  FrameView view() const { return {frame, payload}; }
};
}  // namespace pacecar::fabric
