// Connects an endpoint with its peers: calls, answers, makes connections for our frames and puts,
// and finds out whose accepted connections are. Thread rule: with the domain's lock held.
#pragma once

#include <functional>

#include "net_plugin/libfabric/endpoint/endpoint_state.h"

namespace pacecar::fabric {

class Connector {
 public:
  using Clock = EndpointBootstrap::Clock;
  // Fails a peer before the call returns.
  using FailPeer = std::function<void(Peer&, const Failure&)>;

  Connector(EndpointState& state, FailPeer fail_peer, PeerTable::IsInUse is_in_use);

  int open(const Address& wanted);  // Listens at this address. Returns 0 or a negative fi_errno.
  bool is_open() const { return bootstrap_ != nullptr; }
  // The address of the endpoint, which peers call. Requires is_open().
  const Address& name() const { return name_; }

  void call(Peer& peer);  // Unless the peer is connected, or is being connected.
  void end_calls_of(Peer& peer);
  void progress();

 private:
  static constexpr size_t kMaxCalls = 8;          // TCP connections of one peer
  static constexpr size_t kMaxUnidentified = 64;  // connections, with an inbox each

  Greeting greeting_for(const Peer& peer) const;
  void hand_memory_over(Peer& peer, EndpointBootstrap::CallId call);
  Peer* peer_of(EndpointBootstrap::CallId call);
  void on_event(const EndpointBootstrap::Event& event);
  void on_greeting(const EndpointBootstrap::Event& event);
  void on_greeting_of(Peer& peer, const EndpointBootstrap::Event& event);
  void connect(Peer& peer, const EndpointBootstrap::Event& event);
  static std::unique_ptr<SendConnection> made(Peer& peer, std::unique_ptr<Connecting>& connecting);
  void open_outbox(Peer& peer, std::unique_ptr<SendConnection> connection);
  void open_puts(Peer& peer, std::unique_ptr<SendConnection> connection);
  void accept_unidentified();
  void identify_connections();
  void identify(std::unique_ptr<Inbox> inbox, std::span<const uint8_t> message);

  EndpointState& state_;
  FailPeer fail_peer_;
  PeerTable::IsInUse is_in_use_;
  const uint64_t instance_;
  Address name_;
  std::unique_ptr<EndpointBootstrap> bootstrap_;
  std::unique_ptr<Listener> listener_;
  Clock::time_point polled_at_{};
  // An accepted connection without a kHello yet: the peer is unknown.
  struct Unidentified {
    std::unique_ptr<Inbox> inbox;
    Clock::time_point begun;
  };
  std::vector<Unidentified> unidentified_;
};

}  // namespace pacecar::fabric
