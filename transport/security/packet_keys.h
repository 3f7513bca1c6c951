// The keys of one direction of a connection. The sender counts its packets from 1 on. The counter
// of a packet is its nonce and selects its key: after 2^24 packets (an epoch) both ends use the
// next key, which is derived from the previous one and does not reveal it. So a change of keys
// needs no message and no wait. Thread rule: one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "transport/security/key_exchange.h"
#include "transport/security/packet_cipher.h"

namespace pacecar {

// Packets under one key, as a power of two. RFC 8446, 5.5, allows 2^24.5 packets of 16 KiB.
inline constexpr unsigned kPacketsPerKeyLog2 = 24;

// A cipher with the secret part of its nonces.
struct KeyedCipher {
  PacketCipher cipher;
  PacketCipher::Nonce offset{};

  void set_secret(const Secret& secret);  // Derives key and offset.

  // `size`: bytes of the payload; so the tag covers the size, too.
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

  // Returns the next packet's counter, and makes its key the current one.
  uint64_t count() {
    if ((++counter_ & epoch_mask_) == 0) [[unlikely]]
      advance();
    return counter_;
  }
  const KeyedCipher& current() const { return current_; }

 private:
  [[gnu::noinline]] void advance();

  Secret secret_;  // of current_
  KeyedCipher current_;
  uint64_t epoch_mask_;
  uint64_t counter_ = 0;
};

class OpeningKeys {
 public:
  explicit OpeningKeys(const Secret& secret, unsigned packets_per_key_log2 = kPacketsPerKeyLog2);

  // The key of that packet; nullptr: its epoch is neither the current, the previous nor the next.
  const KeyedCipher* of(uint64_t counter) {
    const uint64_t epoch = counter >> epoch_bits_;
    if (epoch != epochs_[epoch & 1] && !make(epoch)) return nullptr;
    return &ciphers_[epoch & 1];
  }
  // That packet was authentic: its epoch is current from here on.
  void opened(uint64_t counter) {
    if (counter >> epoch_bits_ > epoch_) [[unlikely]]
      advance();
  }

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};
  [[gnu::noinline]] bool make(uint64_t epoch);
  [[gnu::noinline]] void advance();

  Secret next_secret_;  // of epoch_ + 1
  std::array<KeyedCipher, 2> ciphers_;
  std::array<uint64_t, 2> epochs_{kNone, kNone};  // of ciphers_
  uint64_t epoch_ = 0;                            // of the newest packet opened
  unsigned epoch_bits_;
};

}  // namespace pacecar
