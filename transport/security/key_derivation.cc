#include "transport/security/key_derivation.h"

#include <openssl/evp.h>
#include <openssl/kdf.h>

#include <string>

#include "transport/base/check.h"

namespace pacecar {

void derive_key(std::span<const uint8_t> secret, std::string_view purpose,
                std::span<const uint8_t> context, std::span<uint8_t> key) {
  EVP_PKEY_CTX* const hkdf = EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr);
  // A zero ends the purpose: no other purpose and context are the same bytes.
  std::string info(purpose);
  info.push_back('\0');
  info.append(context.begin(), context.end());
  size_t size = key.size();
  PACECAR_CHECK(
      hkdf != nullptr && EVP_PKEY_derive_init(hkdf) == 1 &&
      EVP_PKEY_CTX_set_hkdf_md(hkdf, EVP_sha256()) == 1 &&
      EVP_PKEY_CTX_set1_hkdf_key(hkdf, secret.data(), static_cast<int>(secret.size())) == 1 &&
      EVP_PKEY_CTX_add1_hkdf_info(hkdf, reinterpret_cast<const uint8_t*>(info.data()),
                                  static_cast<int>(info.size())) == 1 &&
      EVP_PKEY_derive(hkdf, key.data(), &size) == 1 && size == key.size());
  EVP_PKEY_CTX_free(hkdf);
}

}  // namespace pacecar
