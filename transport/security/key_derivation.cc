#include "transport/security/key_derivation.h"

#include <openssl/evp.h>
#include <openssl/kdf.h>

#include <memory>

#include "transport/base/check.h"

namespace pacecar {

void derive_key(std::span<const uint8_t> secret, std::span<const uint8_t> salt,
                std::string_view purpose, std::span<uint8_t> key) {
  const std::unique_ptr<EVP_PKEY_CTX, void (*)(EVP_PKEY_CTX*)> context(
      EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr), EVP_PKEY_CTX_free);
  EVP_PKEY_CTX* const hkdf = context.get();
  const auto* info = reinterpret_cast<const uint8_t*>(purpose.data());
  size_t size = key.size();
  // The library takes no empty salt; none equals one of zeros (RFC 5869, 2.2).
  PACECAR_CHECK(
      hkdf != nullptr && EVP_PKEY_derive_init(hkdf) == 1 &&
      EVP_PKEY_CTX_set_hkdf_md(hkdf, EVP_sha256()) == 1 &&
      EVP_PKEY_CTX_set1_hkdf_key(hkdf, secret.data(), static_cast<int>(secret.size())) == 1 &&
      EVP_PKEY_CTX_add1_hkdf_info(hkdf, info, static_cast<int>(purpose.size())) == 1 &&
      (salt.empty() ||
       EVP_PKEY_CTX_set1_hkdf_salt(hkdf, salt.data(), static_cast<int>(salt.size())) == 1) &&
      EVP_PKEY_derive(hkdf, key.data(), &size) == 1 && size == key.size());
}

}  // namespace pacecar
