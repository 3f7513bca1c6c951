#include <openssl/evp.h>

#include "transport/base/check.h"
#include "transport/security/packet_cipher.h"

namespace pacecar {
namespace {

struct FreeContext {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};

}  // namespace

struct PacketCipher::State {
  std::unique_ptr<EVP_CIPHER_CTX, FreeContext> context{EVP_CIPHER_CTX_new()};

  // Encrypts or decrypts. The tag is always computed over the ciphertext.
  void run(bool sealing, const Nonce& nonce, std::span<const uint8_t> clear,
           std::span<const uint8_t> in, uint8_t* out) const {
    EVP_CIPHER_CTX* const c = context.get();
    int size = 0;
    bool ok = EVP_CipherInit_ex(c, nullptr, nullptr, nullptr, nonce.data(), sealing ? 1 : 0) == 1;
    ok &= EVP_CipherUpdate(c, nullptr, &size, clear.data(), static_cast<int>(clear.size())) == 1;
    if (!in.empty()) {
      ok &= EVP_CipherUpdate(c, out, &size, in.data(), static_cast<int>(in.size())) == 1;
    }
    PACECAR_CHECK(ok);
  }
};

PacketCipher::PacketCipher() : state_(std::make_unique<State>()) {
  PACECAR_CHECK(state_->context != nullptr);
}
PacketCipher::~PacketCipher() = default;

void PacketCipher::set_key(const Key& key) {
  PACECAR_CHECK(EVP_CipherInit_ex(state_->context.get(), EVP_aes_128_gcm(), nullptr, key.data(),
                                  nullptr, 1) == 1);
}

void PacketCipher::seal(const Nonce& nonce, std::span<const uint8_t> clear,
                        std::span<const uint8_t> plain, uint8_t* out,
                        std::span<uint8_t> tag) const {
  state_->run(true, nonce, clear, plain, out);
  EVP_CIPHER_CTX* const context = state_->context.get();
  int size = 0;
  PACECAR_CHECK(EVP_EncryptFinal_ex(context, nullptr, &size) == 1);
  PACECAR_CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, static_cast<int>(tag.size()),
                                    tag.data()) == 1);
}

bool PacketCipher::open(const Nonce& nonce, std::span<const uint8_t> clear,
                        std::span<const uint8_t> sealed, uint8_t* out,
                        std::span<const uint8_t> tag) const {
  state_->run(false, nonce, clear, sealed, out);
  EVP_CIPHER_CTX* const context = state_->context.get();
  int size = 0;
  PACECAR_CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, static_cast<int>(tag.size()),
                                    const_cast<uint8_t*>(tag.data())) == 1);
  return EVP_DecryptFinal_ex(context, nullptr, &size) == 1;
}

size_t PacketCipher::bytes() { return sizeof(State); }

}  // namespace pacecar
