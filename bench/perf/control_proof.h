// Both ends of a control channel prove that they have the same cluster key (PACECAR_KEY_FILE),
// before any other message:
//
//   client: prove {nonce}        server: challenge {nonce}
//   client: proof {mac}          server: proof {mac}
//
// The MACs' key is derived from the cluster key with both nonces as salt, and a MAC covers the name
// of its side, so that it cannot be replayed in the other direction or on another channel. The
// client proves the key first, so that nobody without it gets a MAC on which to test guessed keys.
// Later messages are neither encrypted nor authenticated.
//
// Thread rule: one thread at a time.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "bench/perf/control_channel.h"
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
// another key or none, is silent or gone), kSystem.
Result<void> prove(ControlChannel& channel, const bootstrap::ClusterKey& key, Duration limit);

// The server's part, message by message.
class CallerProof {
 public:
  // True: the message is part of the proof. False: it is the first one after it, and the client has
  // proved the key, if this server has one. Errors: kPeer (the client has another key, or one of
  // the two has none), kSystem.
  Result<bool> take(ControlChannel& channel, const bootstrap::ClusterKey& key,
                    const nlohmann::json& message);

 private:
  enum class Stage { kNothing, kChallenged, kProved };

  Result<bool> challenge(ControlChannel& channel, const nlohmann::json& message);
  Result<bool> check(ControlChannel& channel, const bootstrap::ClusterKey& key,
                     const nlohmann::json& message);

  Stage stage_ = Stage::kNothing;
  ControlProof proof_;
};

}  // namespace pacecar::perf
