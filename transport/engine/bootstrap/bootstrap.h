// Joins two processes over TCP before any packet flows. The application carries the handle of the
// listener over a channel of its choice. The two sides prove to each other that they know its
// secret, and the cluster's key if they have one. Then each sends one opaque payload of at most
// kMaxBootstrapPayload bytes (offer, reply). Nothing here blocks or starts a thread: the owner
// polls, with the time of its poll loop. An invalid or silent caller is dropped without delaying
// another caller. Timeouts are positive. Thread rule: an object is used by one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/engine/bootstrap/auth.h"
#include "transport/engine/bootstrap/channel.h"
#include "transport/engine/bootstrap/wire.h"

namespace pacecar {

namespace bootstrap {

// After this time without a connection either side says so.
constexpr Duration kPatience = Duration::from_s(3);

// Times the timeout: how long a peer's program may be late if its host answers. While a rank still
// computes, NCCL lets some others connect and accept, and not their peers.
constexpr int kLatePeer = 60;

// What a connector assumes until an attempt has failed.
constexpr std::string_view kNoAnswer =
    "a firewall drops this port (PACECAR_PORTS sets the range) or its answers (a stateless one "
    "must let in TCP to net.ipv4.ip_local_port_range, too), the route there or back is wrong, or "
    "two hosts have one MAC address";

struct Reach {
  PortRange ports = {};        // for port 0
  bool all_addresses = false;  // of this host and of that IP version
};

}  // namespace bootstrap

// The accepted side of one connection. It may outlive its listener.
class BootstrapSession {
 public:
  enum class State {
    kWaiting,    // for the owner's answer, or for the peer to confirm it
    kConfirmed,  // the peer has the reply
    kFailed,     // failure() says why
  };

  std::span<const uint8_t> offer() const { return offer_; }
  std::string peer() const;  // "host:port" of the connecting side

  // Call exactly one of the two, once. refuse() sends the reason's message, and whether its code is
  // kStale; the connecting side reports them as an error, and the session here fails.
  void reply(std::span<const uint8_t> payload);
  void refuse(Error reason);

  State poll(Instant now);
  // Once failed: why we refused, or how the peer, which had proved the secret, was lost.
  const Error& failure() const { return *failure_; }
  // Once confirmed: the last call.
  bootstrap::Socket take_socket() { return channel_.take_socket(); }

 private:
  friend class BootstrapListener;  // makes it, and takes it as far as the offer
  enum class Stage { kHello, kOffer, kProved };

  BootstrapSession(bootstrap::Channel channel, const bootstrap::Handshake& handshake, Instant now,
                   Duration limit)
      : channel_(std::move(channel)),
        handshake_(handshake),
        arrived_(now),
        deadline_(now + limit) {}

  void answer(bootstrap::ReplyStatus status, std::span<const uint8_t> payload);

  bootstrap::Channel channel_;
  bootstrap::Handshake handshake_;
  Stage stage_ = Stage::kHello;
  Instant arrived_;
  Instant deadline_;            // for the proof, then for the confirmation
  std::vector<uint8_t> offer_;  // once proved
  bool answered_ = false;
  std::optional<Error> failure_;
  State state_ = State::kWaiting;
};

// Accepts any number of connections, until it is destroyed.
class BootstrapListener {
 public:
  // Listens on that IP. The handle carries it and the identity, so peers must be able to reach it.
  // `handshake_timeout` limits the time until a caller's offer, and then that until its
  // confirmation. Callers need the same cluster key, or none if this is empty. Errors:
  // kInvalidArgument (an unspecified IP), kNotFound (no such IP here), kSystem.
  static Result<std::unique_ptr<BootstrapListener>> open(const Address& local,
                                                         const bootstrap::Identity& identity,
                                                         Duration handshake_timeout,
                                                         const bootstrap::ClusterKey& cluster,
                                                         const bootstrap::Reach& reach = {});

  const BootstrapHandle& handle() const { return handle_; }
  const Address& address() const { return address_; }

  // Advances every caller; returns one that has proved the secret and delivered its offer, or null.
  std::unique_ptr<BootstrapSession> poll(Instant now);

  uint64_t strangers() const { return strangers_; }  // callers dropped so far

  // True once: no caller has proved the secret since the first poll, for kPatience.
  bool lonely(Instant now);

  // An error, once, for an owner that expects a peer: no caller has proved the secret for kLatePeer
  // times the timeout since the first poll, or for kPatience since a peer was lost.
  std::optional<Error> take_missing(Instant now);
  // A returned session has failed. A peer whose offer was stale or unread calls again at once.
  void lose(const BootstrapSession& session, Instant now) {
    missing_ = {now + bootstrap::kPatience, session.failure()};
  }

  // A line to log: a caller used our protocol, but had no valid proof, or cannot be accepted (at
  // most once in 10 s, since any host can cause it).
  std::optional<std::string> take_warning() { return std::exchange(warning_, std::nullopt); }

 private:
  BootstrapListener(bootstrap::Socket socket, const Address& local, const bootstrap::Secret& secret,
                    const bootstrap::Identity& identity, Duration timeout,
                    const bootstrap::ClusterKey& cluster);

  void accept_callers(Instant now);
  bool advance(BootstrapSession& caller, Instant now);
  void warn(std::string line, Instant now);
  std::unique_ptr<BootstrapSession> take_authenticated(Instant now);

  bootstrap::Socket socket_;
  Address address_;
  bootstrap::MacKey key_;
  bool has_cluster_key_;
  BootstrapHandle handle_;
  Duration timeout_;
  std::vector<std::unique_ptr<BootstrapSession>> callers_;  // the oldest first
  uint64_t strangers_ = 0;
  std::optional<Instant> lonely_at_;  // from the first poll; never() after the first session
  std::optional<std::pair<Instant, Error>> missing_;  // from when on take_missing() returns it
  std::optional<std::string> warning_;
  std::optional<Instant> next_warning_;  // not before
};

// The connecting side. Until its timeout it tries again while nobody listens, or the listener is
// too busy. It waits kLatePeer times as long for a listener that is connected and not polled. It
// sends its offer at most once.
class BootstrapConnector {
 public:
  // `local`: the source IP, used if it has the IP version of the listener. `cluster`: the listener
  // must have the same key. Errors of this and the following functions, after which the object is
  // useless: kInvalidArgument (the handle), kPeer (refused, not a Pacecar listener, or no answer in
  // time), kStale (closed or refused, but another offer may succeed), kSystem.
  static Result<std::unique_ptr<BootstrapConnector>> open(
      const BootstrapHandle& handle, const Address& local, std::span<const uint8_t> offer,
      Duration timeout, const bootstrap::ClusterKey& cluster, Instant now);

  // The listener's reply, once; nullopt: not yet.
  Result<std::optional<std::vector<uint8_t>>> poll(Instant now);
  // Confirms the reply, without which the listener gives up. True: sent; false: not yet.
  Result<bool> confirm(Instant now);

  // A line to log, once: after kPatience without a connection.
  std::optional<std::string> take_warning(Instant now);

  // The rest of the timeout. A wait for a connected, silent listener does not count.
  Duration left(Instant now) const { return deadline_ - now; }
  // So far nothing has come from the listener's address.
  bool unanswered() const;

  std::string peer() const;  // "host:port" of the listener
  // Once confirmed: the last call.
  bootstrap::Socket take_socket() { return channel_->take_socket(); }

 private:
  enum class Stage { kWaiting, kConnecting, kChallenge, kReply, kAnswered, kConfirm, kEnded };
  using Step = Result<bool>;  // True: continue with the next stage; false: wait. An error is final.

  BootstrapConnector(const bootstrap::HandleContents& contents, const Address& local,
                     std::span<const uint8_t> offer, Duration timeout,
                     const bootstrap::ClusterKey& cluster, Instant now);

  Step in_time(Step step, Instant now);
  bool waits() const { return stage_ == Stage::kChallenge; }  // for the listener's program
  Duration limit() const { return waits() ? timeout_ * bootstrap::kLatePeer : timeout_; }
  Step advance(Instant now);
  Step start(Instant now);
  Step finish_connect(Instant now);
  Step take_challenge(Instant now);
  Step challenge_without_proof();
  Step take_reply();
  Step flush_confirm();
  Step connect_failed(int error, Instant now);
  Step try_later(std::string cause, std::string_view cure, Instant now);
  std::string no_connection(std::string_view since) const;
  Step protocol_error(bootstrap::ChannelStatus status) const;

  Address listener_;
  Address local_;
  bootstrap::Handshake handshake_;
  bool has_cluster_key_;
  std::vector<uint8_t> offer_;
  Duration timeout_;
  Instant deadline_;
  Instant connected_;  // the newest TCP connection
  Duration pause_;     // before the next attempt; doubles
  Instant next_attempt_;
  Instant next_warning_;
  Stage stage_ = Stage::kWaiting;
  std::string last_cause_ = "no answer";
  std::string_view cure_ = bootstrap::kNoAnswer;
  std::optional<bootstrap::Channel> channel_;
  std::vector<uint8_t> reply_;
};

}  // namespace pacecar
