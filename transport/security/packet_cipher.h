// AES-128-GCM (NIST SP 800-38D) for packets: a tag over clear and encrypted bytes. The build uses
// Intel's ipsec-mb if it finds it, otherwise OpenSSL, which takes ten times as long for a small
// packet. The caller must not use a nonce twice under one key. Thread rule: one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace pacecar {

class PacketCipher {
 public:
  static constexpr size_t kKeyBytes = 16;
  static constexpr size_t kNonceBytes = 12;
  using Key = std::array<uint8_t, kKeyBytes>;
  using Nonce = std::array<uint8_t, kNonceBytes>;

  PacketCipher();
  ~PacketCipher();

  // Must be called first, and again for each further key. Allocates nothing.
  void set_key(const Key& key);
  // Encrypts `plain` into `out`, of the same size, and writes the tag (8 to 16 bytes) over `clear`
  // and the ciphertext.
  void seal(const Nonce& nonce, std::span<const uint8_t> clear, std::span<const uint8_t> plain,
            uint8_t* out, std::span<uint8_t> tag) const;
  // Decrypts `sealed` into `out`. False: the tag is wrong, and the content of `out` is undefined.
  bool open(const Nonce& nonce, std::span<const uint8_t> clear, std::span<const uint8_t> sealed,
            uint8_t* out, std::span<const uint8_t> tag) const;

  static size_t bytes();  // Memory that one cipher allocates.

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pacecar
