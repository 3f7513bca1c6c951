// X25519 (RFC 7748): two NICs that know each other's public key share a secret, which an observer
// of both public keys does not learn. A NIC makes its pair when it is opened and stores it nowhere:
// earlier packets stay secret if other keys leak later.
//
// Thread rule: one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

namespace pacecar {

using Secret = std::array<uint8_t, 32>;

class KeyExchange {
 public:
  using PublicKey = std::array<uint8_t, 32>;

  // `seed`: 32 bytes that nobody can guess.
  explicit KeyExchange(const Secret& seed);
  ~KeyExchange();

  const PublicKey& public_key() const { return public_key_; }
  // nullopt: one of the few invalid public keys with which the secret would be known.
  std::optional<Secret> agree(const PublicKey& peer) const;

 private:
  struct Pair;
  std::unique_ptr<Pair> pair_;
  PublicKey public_key_{};
};

}  // namespace pacecar
