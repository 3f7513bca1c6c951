// The keys of one direction of a connection. The sender numbers its packets from 1 on; a packet's
// number, its counter, is its nonce and selects its key: after 2^24 packets both ends use the next
// key, which is derived from the previous one and does not reveal it. That needs no message and no
// wait.
//
// Thread rule: one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "transport/security/key_exchange.h"
#include "transport/security/packet_cipher.h"

namespace pacecar {

// Packets under one key, as a power of two: few enough to reveal nothing with 16 KiB each (RFC
// 8446, 5.5, allows 2^24.5).
inline constexpr unsigned kPacketsPerKeyLog2 = 24;

// One key after another.
class KeyChain {
 public:
  explicit KeyChain(const Secret& first) : secret_(first) {}
  // Keys `cipher` with the present one.
  void key(PacketCipher& cipher, PacketCipher::Nonce& offset) const;
  void advance();

 private:
  Secret secret_;
};

// A cipher with the secret part of its nonces.
struct KeyedCipher {
  PacketCipher cipher;
  PacketCipher::Nonce offset{};

  // `size`: of the payload, so that the tag covers it as well.
  PacketCipher::Nonce nonce(uint64_t counter, uint32_t size) const {
    PacketCipher::Nonce nonce = offset;
    mix(size, nonce.data());
    mix(counter, nonce.data() + sizeof size);
    return nonce;
  }

 private:
  template <typename T>
  static void mix(T value, uint8_t* into) {
    T bytes;
    std::memcpy(&bytes, into, sizeof bytes);
    bytes ^= value;
    std::memcpy(into, &bytes, sizeof bytes);
  }
};

class SealingKeys {
 public:
  explicit SealingKeys(const Secret& secret, unsigned packets_per_key_log2 = kPacketsPerKeyLog2);

  // Returns the next packet's counter, and switches to its key.
  uint64_t count() {
    if ((++counter_ & epoch_mask_) == 0) [[unlikely]] advance();
    return counter_;
  }
  const KeyedCipher& current() const { return current_; }

 private:
  [[gnu::noinline]] void advance();

  KeyChain chain_;
  KeyedCipher current_;
  uint64_t epoch_mask_;
  uint64_t counter_ = 0;
};

class OpeningKeys {
 public:
  explicit OpeningKeys(const Secret& secret, unsigned packets_per_key_log2 = kPacketsPerKeyLog2);

  // The key of that packet; nullptr: neither the present, the previous nor the next one.
  const KeyedCipher* of(uint64_t counter) {
    const uint64_t epoch = counter >> epoch_bits_;
    if (epoch != epochs_[epoch & 1] && !make(epoch)) return nullptr;
    return &ciphers_[epoch & 1];
  }
  // That packet was authentic.
  void opened(uint64_t counter) {
    if (counter >> epoch_bits_ > epoch_) [[unlikely]] advance();
  }

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};
  [[gnu::noinline]] bool make(uint64_t epoch);
  [[gnu::noinline]] void advance();

  KeyChain chain_;  // of the next epoch
  std::array<KeyedCipher, 2> ciphers_;
  std::array<uint64_t, 2> epochs_{kNone, kNone};  // theirs
  uint64_t epoch_ = 0;                            // of the newest packet opened
  unsigned epoch_bits_;
};

}  // namespace pacecar
