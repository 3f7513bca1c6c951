// Proves the handle's secret, and the cluster's key if there is one, within one handshake, to which
// a nonce of each side binds the proof. Invariant: a MAC covers its frame's type, both nonces and
// the body after the MAC, so that no frame is valid in another place, direction or handshake.
// Neither secret nor key is ever sent. Thread rule: any thread; one object per connection.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/engine/bootstrap/wire.h"

namespace pacecar::bootstrap {

// The key that the hosts of a cluster share; empty: none.
struct ClusterKey {
  std::vector<uint8_t> bytes;

  explicit operator bool() const { return !bytes.empty(); }
};

using MacKey = std::array<uint8_t, 32>;

// HKDF-SHA256 (RFC 5869) of a non-empty key. Keys of two purposes reveal nothing of each other.
MacKey derive_key(const ClusterKey& cluster, std::span<const uint8_t> salt,
                  std::string_view purpose);
// The key of a handshake's MACs: derived from the cluster's key with the handle's secret as salt;
// without a cluster key the secret alone.
MacKey handshake_key(const Secret& secret, const ClusterKey& cluster);

Mac mac_of(const MacKey& key, std::span<const uint8_t> content);  // HMAC-SHA256.
bool same_mac(const Mac& one, const Mac& other);                  // Takes constant time.

struct Handshake {
  MacKey key{};
  Nonce connector_nonce{};
  Nonce listener_nonce{};

  // A frame whose body is the MAC and then `content`.
  Frame seal(FrameType type, std::span<const uint8_t> content) const;
  // The content of a received body of that type; nullopt: the MAC is wrong.
  std::optional<std::span<const uint8_t>> open(FrameType type, std::span<const uint8_t> body) const;

 private:
  Mac mac(FrameType type, std::span<const uint8_t> content) const;
};

// An error sentence for a peer whose MAC is wrong; `peer`: such as "the listener at 10.0.0.1:4711".
// `has_cluster_key`: this side has one.
std::string without_proof(std::string_view peer, bool has_cluster_key);

// OpenSSL's state outlives main(), after which NCCL's threads may still connect. This has an effect
// if nothing in the process has used OpenSSL before.
void keep_crypto_at_exit();

}  // namespace pacecar::bootstrap
