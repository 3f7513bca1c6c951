#include "transport/security/key_exchange.h"

#include <openssl/evp.h>

#include "transport/base/check.h"

namespace pacecar {
namespace {

struct FreeContext {
  void operator()(EVP_PKEY_CTX* context) const { EVP_PKEY_CTX_free(context); }
};

}  // namespace

void KeyExchange::FreeKey::operator()(evp_pkey_st* key) const { EVP_PKEY_free(key); }

KeyExchange::KeyExchange(const Secret& seed)
    : key_(EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, nullptr, seed.data(), seed.size())) {
  size_t size = public_key_.size();
  PACECAR_CHECK(key_ != nullptr &&
                EVP_PKEY_get_raw_public_key(key_.get(), public_key_.data(), &size) == 1);
}

std::optional<Secret> KeyExchange::agree(const PublicKey& peer) const {
  const OwnedKey other(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, nullptr, peer.data(), peer.size()));
  const std::unique_ptr<EVP_PKEY_CTX, FreeContext> context(EVP_PKEY_CTX_new(key_.get(), nullptr));
  PACECAR_CHECK(other != nullptr && context != nullptr);
  Secret secret;
  size_t size = secret.size();
  // The library refuses public keys that would give a secret of zeros.
  const bool agreed = EVP_PKEY_derive_init(context.get()) == 1 &&
                      EVP_PKEY_derive_set_peer(context.get(), other.get()) == 1 &&
                      EVP_PKEY_derive(context.get(), secret.data(), &size) == 1;
  return agreed ? std::optional(secret) : std::nullopt;
}

}  // namespace pacecar
