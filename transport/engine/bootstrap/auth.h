// Proof of the handle's secret, and of the cluster's key where there is one, bound to one handshake
// by a nonce of each side.
// Invariant: a MAC covers its frame's type, both nonces and the body after the MAC, so that no
// frame serves in another place, direction or handshake. Neither secret nor key ever travels. Any
// thread; one object per connection.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/engine/bootstrap/wire.h"

namespace pacecar::bootstrap {

// What the hosts of a cluster share beside their handles; without bytes they share nothing.
struct ClusterKey {
  std::vector<uint8_t> bytes;

  explicit operator bool() const { return !bytes.empty(); }
};

using MacKey = std::array<uint8_t, 32>;

// HKDF-SHA256 (RFC 5869) of a cluster key that has bytes. Keys of different purposes tell nothing
// of each other.
MacKey derive_key(const ClusterKey& cluster, std::span<const uint8_t> salt,
                  std::string_view purpose);
// What a handshake's MACs are made with: derived from the cluster's key with the handle's secret as
// salt; without a cluster key the secret alone.
MacKey handshake_key(const Secret& secret, const ClusterKey& cluster);

// HMAC-SHA256.
Mac mac_of(const MacKey& key, std::span<const uint8_t> content);
// Takes the same time wherever they differ.
bool same_mac(const Mac& one, const Mac& other);

struct Handshake {
  MacKey key{};
  Nonce connector_nonce{};
  Nonce listener_nonce{};

  // A frame whose body is the MAC and then `content`.
  Frame seal(FrameType type, std::span<const uint8_t> content) const;
  // The content of a received body of that type; nullopt when its MAC is not of the key.
  std::optional<std::span<const uint8_t>> open(FrameType type, std::span<const uint8_t> body) const;

 private:
  Mac mac(FrameType type, std::span<const uint8_t> content) const;
};

// The sentence for people about a peer whose MAC is wrong, such as "the listener at 10.0.0.1:4711".
// `has_cluster_key`: this side has one.
std::string without_proof(std::string_view peer, bool has_cluster_key);

// Fills `out` with random bytes that nobody can guess; false when the system has none.
bool fill_random(std::span<uint8_t> out);

}  // namespace pacecar::bootstrap
