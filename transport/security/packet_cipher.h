// AES-128-GCM (NIST SP 800-38D), for packets: a tag over clear and enciphered bytes. By Intel's
// ipsec-mb where it is found, else by OpenSSL, which takes ten times as long for a small packet.
//
// Invariant of its user: no nonce is used twice under one key.
// Thread rule: one thread at a time.
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
  PacketCipher(PacketCipher&&) noexcept;
  PacketCipher& operator=(PacketCipher&&) noexcept;
  ~PacketCipher();

  // Before anything else, and again for each further key. Allocates nothing.
  void set_key(const Key& key);
  // Enciphers `plain` into `out`, which has its size, and writes the tag of both: 8 to 16 bytes.
  void seal(const Nonce& nonce, std::span<const uint8_t> clear, std::span<const uint8_t> plain,
            uint8_t* out, std::span<uint8_t> tag) const;
  // False: wrong tag; the content of `out` is undefined then.
  bool open(const Nonce& nonce, std::span<const uint8_t> clear, std::span<const uint8_t> sealed,
            uint8_t* out, std::span<const uint8_t> tag) const;

  // Memory outside of the object.
  static size_t bytes();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pacecar
