// Both ends of a control channel prove that they have the same cluster key (PACECAR_KEY_FILE),
// before anything else is said:
//
//   client: prove {nonce}        server: challenge {nonce}
//   client: proof {mac}          server: proof {mac}
//
// The MACs' key is derived from the cluster's with both nonces as salt, and a MAC covers its side's
// name, so that none serves in another direction or on another channel. The client is first: a
// server says nothing to a stranger that he could try keys on. What is said afterwards is neither
// encrypted nor authenticated.
//
// Thread rule: one thread at a time.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "bench/perf/control_channel.h"
#include "transport/engine/bootstrap/auth.h"

namespace pacecar::perf {

// The cluster key and nonces of a channel's proof; one for each channel.
struct ControlProof {
  bootstrap::Nonce client{};
  bootstrap::Nonce server{};

  bootstrap::Mac of_client(const bootstrap::ClusterKey& key) const;
  bootstrap::Mac of_server(const bootstrap::ClusterKey& key) const;
};

// The client's part, within `limit`; nothing to do without a key. Errors: kPeer (the server has
// another key or none, is silent or gone), kSystem.
Result<void> prove(ControlChannel& channel, const bootstrap::ClusterKey& key, Duration limit);

// The server's part, message by message.
class CallerProof {
 public:
  // True: the message belongs to the proof, and the next one comes. False: it is the client's first
  // of another kind, and he has proved what this server asks for. Errors: kPeer (he has another key
  // than this server, or one of them has none), kSystem.
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
