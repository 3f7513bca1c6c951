#include "transport/security/key_derivation.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <array>
#include <memory>

#include "transport/base/check.h"

namespace pacecar {
namespace {

// OpenSSL does not write to these bytes.
OSSL_PARAM octets(const char* name, const void* bytes, size_t size) {
  return OSSL_PARAM_construct_octet_string(name, const_cast<void*>(bytes), size);
}

}  // namespace

void derive_key(std::span<const uint8_t> secret, std::span<const uint8_t> salt,
                std::string_view purpose, std::span<uint8_t> key) {
  const std::unique_ptr<EVP_KDF, void (*)(EVP_KDF*)> hkdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr),
                                                          EVP_KDF_free);
  PACECAR_CHECK(hkdf != nullptr);
  const std::unique_ptr<EVP_KDF_CTX, void (*)(EVP_KDF_CTX*)> context(EVP_KDF_CTX_new(hkdf.get()),
                                                                     EVP_KDF_CTX_free);
  PACECAR_CHECK(context != nullptr);
  char digest[] = "SHA256";
  // An empty salt equals one of zeros (RFC 5869, 2.2); it is last because the library takes no
  // empty one.
  const std::array<OSSL_PARAM, 5> inputs{
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      octets(OSSL_KDF_PARAM_KEY, secret.data(), secret.size()),
      octets(OSSL_KDF_PARAM_INFO, purpose.data(), purpose.size()),
      salt.empty() ? OSSL_PARAM_construct_end()
                   : octets(OSSL_KDF_PARAM_SALT, salt.data(), salt.size()),
      OSSL_PARAM_construct_end()};
  PACECAR_CHECK(EVP_KDF_derive(context.get(), key.data(), key.size(), inputs.data()) == 1);
}

}  // namespace pacecar
