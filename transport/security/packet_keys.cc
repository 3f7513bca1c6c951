#include "transport/security/packet_keys.h"

#include "transport/security/key_derivation.h"

namespace pacecar {

void KeyChain::key(PacketCipher& cipher, PacketCipher::Nonce& offset) const {
  PacketCipher::Key key;
  derive_key(secret_, {}, "packet key", key);
  derive_key(secret_, {}, "packet nonce", offset);
  cipher.set_key(key);
}

void KeyChain::advance() {
  Secret next;
  derive_key(secret_, {}, "next packet key", next);
  secret_ = next;
}

SealingKeys::SealingKeys(const Secret& secret, unsigned packets_per_key_log2)
    : chain_(secret), epoch_mask_((uint64_t{1} << packets_per_key_log2) - 1) {
  chain_.key(current_.cipher, current_.offset);
}

void SealingKeys::advance() {
  chain_.advance();
  chain_.key(current_.cipher, current_.offset);
}

OpeningKeys::OpeningKeys(const Secret& secret, unsigned packets_per_key_log2)
    : chain_(secret), epoch_bits_(packets_per_key_log2) {
  chain_.key(ciphers_[0].cipher, ciphers_[0].offset);
  epochs_[0] = 0;
  chain_.advance();
}

// Replaces the previous key, which is too old for any packet in flight.
bool OpeningKeys::make(uint64_t epoch) {
  if (epoch != epoch_ + 1) return false;
  KeyedCipher& next = ciphers_[epoch & 1];
  chain_.key(next.cipher, next.offset);
  epochs_[epoch & 1] = epoch;
  return true;
}

void OpeningKeys::advance() {
  ++epoch_;
  chain_.advance();
}

}  // namespace pacecar
