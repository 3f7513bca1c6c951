// Listens for the clients of `pacecar bw` and `lat`, which must prove the cluster key, if this host
// has one.
//
// Clients are untrusted. The server reads from all that have connected at once, so that none waits
// for another. It refuses, with an error, a client that sends nothing in time or something else
// than the greeting, and, if this host has a cluster key (PACECAR_KEY_FILE), a client that does not
// prove it first. The proof comes before any other message:
//
//   client: prove {nonce}        server: challenge {nonce}
//   client: proof {mac}          server: proof {mac}
//
// The MACs' key is derived from the cluster key with both nonces as salt, and a MAC covers the name
// of its side, so that it cannot be replayed in the other direction or on another channel. The
// client proves the key first, so that no client without it gets a MAC on which to test guesses.
// Later messages are neither encrypted nor authenticated.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/perf/control_channel.h"
#include "transport/base/port_range.h"
#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/engine/bootstrap/auth.h"

namespace pacecar::perf {

// The nonces of a channel's proof; one for each channel.
struct ControlProof {
  bootstrap::Nonce client{};
  bootstrap::Nonce server{};

  // The MAC of a side: "client", "server".
  bootstrap::Mac mac(const bootstrap::ClusterKey& key, std::string_view side) const;
};

// The client's part, within `limit`. Does nothing without a key. Errors: kPeer (the server has
// another key or none, is silent or gone).
Result<void> prove(ControlChannel& channel, const bootstrap::ClusterKey& key, Duration limit);

// The server's part, message by message.
class CallerProof {
 public:
  // True: the message is part of the proof. False: it is not, and the proof is complete or not
  // needed. Errors: kPeer (the client has another key, or one of the two has none).
  Result<bool> take(ControlChannel& channel, const bootstrap::ClusterKey& key,
                    const nlohmann::json& message);

 private:
  enum class Stage { kNothing, kChallenged, kProved };

  Stage stage_ = Stage::kNothing;
  ControlProof proof_;
};

struct Caller {
  ControlChannel channel;
  nlohmann::json greeting;
};

class ControlListener {
 public:
  // Receives the reason why a client was refused.
  using OnRefused = std::function<void(const Error&)>;

  // Clients without a greeting; if there are more, the oldest is dropped.
  static constexpr size_t kMaxWaiting = 64;
  static constexpr Duration kGreetingLimit = Duration::from_s(2);

  // Listens at each of these addresses or names of this host. Port 0 takes any free port of
  // `ports`. Clients must prove() `key`, if it is not empty.
  static Result<ControlListener> open(const std::vector<std::string>& hosts, uint16_t port,
                                      const bootstrap::ClusterKey& key = {}, PortRange ports = {});

  // Waits without limit for the next client whose first message is of the type `greeting`.
  Result<Caller> accept(
      std::string_view greeting, const OnRefused& on_refused = [](const Error&) {});

  uint16_t port() const { return port_; }

 private:
  struct Waiting {
    ControlChannel channel;
    Instant deadline;
    CallerProof proof;
  };

  Result<void> listen_at(const std::string& host);
  void wait() const;
  Result<nlohmann::json> first_message(Waiting& caller, std::string_view greeting) const;
  Result<void> take_connections(const OnRefused& on_refused);
  std::optional<Caller> take_greeted(std::string_view greeting, const OnRefused& on_refused);

  std::vector<FileDescriptor> sockets_;
  uint16_t port_ = 0;
  bootstrap::ClusterKey key_;
  std::list<Waiting> waiting_;  // the oldest first
};

}  // namespace pacecar::perf
