// PacketGuard: the trailer of packets in extended mode, with security. (Without security it is a
// checksum.) The trailer, a seal, proves that the peer of this queue pair has sent the packet and
// that the packet is not a replay:
//   counter 32 bits | tag 64 bits (auth) or 128 bits (encrypt)
// The ends count with 64 bits and transmit the low 32. No counter is used twice, neither for a
// retransmission nor for an acknowledgement. The tag covers the whole header, the payload's length
// and, depending on the mode, the payload:
//   auth      the whole payload of control writes and of payloads up to 152 bytes; of longer ones
//             the bytes that a checksum would cover
//   encrypt   the whole payload, encrypted
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <span>

#include "transport/base/packet_modes.h"
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
    bool whole_payloads = false;  // tags cover payloads of any size: for control writes
    // By how many counters packets may overtake each other; a power of two.
    uint32_t replay_window = 0;
    unsigned packets_per_key_log2 = kPacketsPerKeyLog2;
    Secret send{};
    Secret receive{};
  };
  explicit PacketGuard(const Config& config);

  bool enciphers() const { return security_ == Security::kEncrypt; }
  // Writes the trailer, and if payloads are encrypted the ciphertext to `enciphered`.
  void seal(std::span<const uint8_t> header, std::span<const uint8_t> payload, uint8_t* enciphered,
            std::span<uint8_t> trailer);
  // Checks a packet; if payloads are encrypted, writes the plaintext, of the same size, to `room`.
  Verdict open(std::span<const uint8_t> header, std::span<const uint8_t> payload,
               std::span<const uint8_t> trailer, uint8_t* room);

  static Bytes bytes(uint32_t replay_window);  // Memory of a guard.

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
