// X25519 (RFC 7748): two NICs that know each other's public key derive a common secret. Who only
// observes the public keys cannot derive it. A NIC makes its key pair when it is opened and stores
// it nowhere, so earlier packets stay secret if other keys leak later. One thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

struct evp_pkey_st;  // OpenSSL's EVP_PKEY

namespace pacecar {

using Secret = std::array<uint8_t, 32>;

class KeyExchange {
 public:
  using PublicKey = std::array<uint8_t, 32>;

  explicit KeyExchange(const Secret& seed);  // `seed`: 32 bytes that nobody can guess.

  const PublicKey& public_key() const { return public_key_; }
  // nullopt: `peer` is one of the few public keys that would give a secret known to everyone.
  std::optional<Secret> agree(const PublicKey& peer) const;

 private:
  struct FreeKey {
    void operator()(evp_pkey_st* key) const;
  };
  using OwnedKey = std::unique_ptr<evp_pkey_st, FreeKey>;

  OwnedKey key_;
  PublicKey public_key_{};
};

}  // namespace pacecar
