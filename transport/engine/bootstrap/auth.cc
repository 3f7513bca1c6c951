#include "transport/engine/bootstrap/auth.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>

#include "transport/base/check.h"
#include "transport/security/key_derivation.h"

namespace pacecar::bootstrap {
namespace {

constexpr std::string_view kPurpose = "pacecar bootstrap";

}  // namespace

MacKey derive_key(const ClusterKey& cluster, std::span<const uint8_t> salt,
                  std::string_view purpose) {
  PACECAR_CHECK(cluster && !salt.empty());
  MacKey key;
  pacecar::derive_key(cluster.bytes, salt, purpose, key);
  return key;
}

MacKey handshake_key(const Secret& secret, const ClusterKey& cluster) {
  if (cluster) return derive_key(cluster, secret, kPurpose);
  MacKey key{};  // HMAC pads a shorter key with zeros (RFC 2104)
  std::copy(secret.begin(), secret.end(), key.begin());
  return key;
}

Mac mac_of(const MacKey& key, std::span<const uint8_t> content) {
  Mac result;
  PACECAR_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), content.data(),
                     content.size(), result.data(), nullptr) != nullptr);
  return result;
}

bool same_mac(const Mac& one, const Mac& other) {
  return CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

Mac Handshake::mac(FrameType type, std::span<const uint8_t> content) const {
  std::array<uint8_t, 1 + 2 * sizeof(Nonce) + Frame::kMaxBytes> input;
  PACECAR_CHECK(content.size() <= Frame::kMaxBytes);
  auto end = input.begin();
  *end++ = static_cast<uint8_t>(type);
  end = std::copy(connector_nonce.begin(), connector_nonce.end(), end);
  end = std::copy(listener_nonce.begin(), listener_nonce.end(), end);
  end = std::copy(content.begin(), content.end(), end);
  return mac_of(key, std::span(input.begin(), end));
}

Frame Handshake::seal(FrameType type, std::span<const uint8_t> content) const {
  return encode_frame(type, mac(type, content), content);
}

std::optional<std::span<const uint8_t>> Handshake::open(FrameType type,
                                                        std::span<const uint8_t> body) const {
  const auto sealed = parse_sealed(body);
  if (!sealed) return std::nullopt;
  if (!same_mac(mac(type, sealed->content), sealed->mac)) return std::nullopt;
  return sealed->content;
}

std::string without_proof(std::string_view peer, bool has_cluster_key) {
  return fmt::format(
      "{} does not know the handle's secret, {}: pass on the handle of a running "
      "listener, and let PACECAR_KEY_FILE name the same key on both hosts or on "
      "neither",
      peer,
      has_cluster_key ? "or not the cluster key that PACECAR_KEY_FILE names here"
                      : "or has a cluster key, and here PACECAR_KEY_FILE is unset");
}

void keep_crypto_at_exit() { OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr); }

}  // namespace pacecar::bootstrap
