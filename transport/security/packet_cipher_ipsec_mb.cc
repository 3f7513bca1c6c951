#include <intel-ipsec-mb.h>

#include <cstdint>

#include "transport/base/check.h"
#include "transport/security/packet_cipher.h"

namespace pacecar {
namespace {

// Compares two tags of the same size in constant time: it does not reveal where they differ.
bool same_bytes(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<uint8_t>(a[i] ^ b[i]);
  asm volatile("" : "+r"(difference));  // else the compiler might end the loop early
  return difference == 0;
}

// The library's functions for this processor. They keep nothing between calls.
struct Functions {
  aes_gcm_pre_t set_key;
  aes_gcm_enc_dec_t seal;
  aes_gcm_enc_dec_t open;
};

Functions find_functions() {
  IMB_MGR* const manager = alloc_mb_mgr(0);
  PACECAR_CHECK(manager != nullptr);
  init_mb_mgr_auto(manager, nullptr);
  PACECAR_CHECK(imb_get_errno(manager) == 0);
  const Functions functions{
      .set_key = manager->gcm128_pre, .seal = manager->gcm128_enc, .open = manager->gcm128_dec};
  free_mb_mgr(manager);
  return functions;
}

const Functions& functions() {
  static const Functions found = find_functions();
  return found;
}

}  // namespace

struct PacketCipher::State {
  gcm_key_data key;
  Functions functions;
};

PacketCipher::PacketCipher() : state_(std::make_unique<State>()) {
  state_->functions = functions();
}
PacketCipher::~PacketCipher() { imb_clear_mem(&state_->key, sizeof state_->key); }

void PacketCipher::set_key(const Key& key) { state_->functions.set_key(key.data(), &state_->key); }

void PacketCipher::seal(const Nonce& nonce, std::span<const uint8_t> clear,
                        std::span<const uint8_t> plain, uint8_t* out,
                        std::span<uint8_t> tag) const {
  gcm_context_data context;
  state_->functions.seal(&state_->key, &context, out, plain.data(), plain.size(), nonce.data(),
                         clear.data(), clear.size(), tag.data(), tag.size());
}

bool PacketCipher::open(const Nonce& nonce, std::span<const uint8_t> clear,
                        std::span<const uint8_t> sealed, uint8_t* out,
                        std::span<const uint8_t> tag) const {
  gcm_context_data context;
  std::array<uint8_t, 16> computed;
  state_->functions.open(&state_->key, &context, out, sealed.data(), sealed.size(), nonce.data(),
                         clear.data(), clear.size(), computed.data(), tag.size());
  return same_bytes(std::span(computed).first(tag.size()), tag);
}

size_t PacketCipher::bytes() { return sizeof(State); }

}  // namespace pacecar
