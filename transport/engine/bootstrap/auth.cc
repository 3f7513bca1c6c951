#include "transport/engine/bootstrap/auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>

#include "transport/base/check.h"

namespace pacecar::bootstrap {

Mac Handshake::mac(FrameType type, std::span<const uint8_t> content) const {
  std::array<uint8_t, 1 + 2 * sizeof(Nonce) + Frame::kMaxBytes> input;
  PACECAR_CHECK(content.size() <= Frame::kMaxBytes);
  auto end = input.begin();
  *end++ = static_cast<uint8_t>(type);
  end = std::copy(connector_nonce.begin(), connector_nonce.end(), end);
  end = std::copy(listener_nonce.begin(), listener_nonce.end(), end);
  end = std::copy(content.begin(), content.end(), end);
  Mac result;
  PACECAR_CHECK(HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), input.data(),
                     static_cast<size_t>(end - input.begin()), result.data(), nullptr) != nullptr);
  return result;
}

Frame Handshake::seal(FrameType type, std::span<const uint8_t> content) const {
  return encode_frame(type, mac(type, content), content);
}

std::optional<std::span<const uint8_t>> Handshake::open(FrameType type,
                                                        std::span<const uint8_t> body) const {
  const auto sealed = parse_sealed(body);
  if (!sealed) return std::nullopt;
  const Mac expected = mac(type, sealed->content);
  if (CRYPTO_memcmp(expected.data(), sealed->mac.data(), expected.size()) != 0) return std::nullopt;
  return sealed->content;
}

bool fill_random(std::span<uint8_t> out) {
  return RAND_bytes(out.data(), static_cast<int>(out.size())) == 1;
}

}  // namespace pacecar::bootstrap
