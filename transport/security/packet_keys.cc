#include "transport/security/packet_keys.h"

#include "transport/security/key_derivation.h"

namespace pacecar {
namespace {

Secret next_secret(const Secret& secret) {
  Secret next;
  derive_key(secret, {}, "next packet key", next);
  return next;
}

}  // namespace

void KeyedCipher::set_secret(const Secret& secret) {
  PacketCipher::Key key;
  derive_key(secret, {}, "packet key", key);
  derive_key(secret, {}, "packet nonce", offset);
  cipher.set_key(key);
}

SealingKeys::SealingKeys(const Secret& secret, unsigned packets_per_key_log2)
    : secret_(secret), epoch_mask_((uint64_t{1} << packets_per_key_log2) - 1) {
  current_.set_secret(secret_);
}

void SealingKeys::advance() {
  secret_ = next_secret(secret_);
  current_.set_secret(secret_);
}

OpeningKeys::OpeningKeys(const Secret& secret, unsigned packets_per_key_log2)
    : next_secret_(next_secret(secret)), epoch_bits_(packets_per_key_log2) {
  ciphers_[0].set_secret(secret);
  epochs_[0] = 0;
}

// Replaces the previous key, which is too old for any packet in flight.
bool OpeningKeys::make(uint64_t epoch) {
  if (epoch != epoch_ + 1) return false;
  ciphers_[epoch & 1].set_secret(next_secret_);
  epochs_[epoch & 1] = epoch;
  return true;
}

void OpeningKeys::advance() {
  ++epoch_;
  next_secret_ = next_secret(next_secret_);
}

}  // namespace pacecar
