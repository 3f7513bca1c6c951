// X25519 (RFC 7748): two NICs that know each other's public key have a secret in common, which
// nobody has who has seen both keys. A NIC makes its pair when it is opened and stores it nowhere:
// what was sent stays secret when other keys are lost later.
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
  // nullopt: that is no public key, but one of the few that would make the secret known to all.
  std::optional<Secret> agree(const PublicKey& peer) const;

 private:
  struct Pair;
  std::unique_ptr<Pair> pair_;
  PublicKey public_key_{};
};

}  // namespace pacecar
