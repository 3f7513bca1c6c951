// The trailer of extended packets: a checksum, or a seal, which proves that the peer of this queue
// pair has sent the packet and that it is no replay. A seal is
//
//   counter 32 | tag 64 (auth) or 128 bits (encrypt)
//
// where the counter, of 64 bits at both ends, is never used twice: not for a retransmission, and
// not for an acknowledgement. The tag covers the whole header, the payload's length and, as the
// mode is, the payload:
//
//   auth      all of it in control writes; else up to 152 bytes, and of a longer one what a
//             checksum would cover
//   encrypt   all, and it is enciphered
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <span>

#include "transport/base/security.h"
#include "transport/base/units.h"
#include "transport/security/packet_keys.h"
#include "transport/security/replay_window.h"
#include "transport/wire/checksum.h"

namespace pacecar {

constexpr size_t trailer_bytes(Security security) {
  constexpr size_t kCounterBytes = 4;
  constexpr size_t kShortTagBytes = 8;
  constexpr size_t kTagBytes = 16;
  if (security == Security::kOff) return wire::kChecksumBytes;
  return kCounterBytes + (security == Security::kAuth ? kShortTagBytes : kTagBytes);
}

// The seals of one connection.
class PacketGuard {
 public:
  enum class Verdict : uint8_t { kGood, kForged, kReplayed };
  struct Config {
    Security security = Security::kAuth;  // not kOff
    wire::Coverage coverage = wire::Coverage::kHeader;
    bool whole_payloads = false;  // tags cover all of them: control writes
    uint32_t replay_window = 0;   // counters by which packets may overtake each other; a power of
                                  // two
    unsigned packets_per_key_log2 = kPacketsPerKeyLog2;
    Secret send{};
    Secret receive{};
  };
  explicit PacketGuard(const Config& config);

  bool enciphers() const { return security_ == Security::kEncrypt; }
  // Writes the trailer; if payloads are encrypted, also the ciphertext.
  void seal(std::span<const uint8_t> header, std::span<const uint8_t> payload, uint8_t* enciphered,
            std::span<uint8_t> trailer);
  // Checks a packet; if payloads are encrypted, writes the plaintext, of the same size, to `room`.
  Verdict open(std::span<const uint8_t> header, std::span<const uint8_t> payload,
               std::span<const uint8_t> trailer, uint8_t* room);

  static Bytes bytes(uint32_t replay_window);  // of memory

 private:
  template <typename Call>
  auto with_clear(std::span<const uint8_t> header, std::span<const uint8_t> payload,
                  Call call) const;

  SealingKeys sealing_;
  OpeningKeys opening_;
  ReplayWindow window_;
  Security security_;
  wire::Coverage coverage_;
  bool whole_payloads_;
};

}  // namespace pacecar
