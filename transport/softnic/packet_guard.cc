#include "transport/softnic/packet_guard.h"

#include <array>
#include <cstring>

#include "transport/wire/big_endian.h"
#include "transport/wire/extended.h"

namespace pacecar {
namespace {

constexpr size_t kCounterBytes = 4;
// The tag covers a payload of up to this size as a whole: polled memory, grants and demands.
constexpr size_t kShortPayload = 128;

// The counter nearest to `reference` whose low 32 bits are those.
uint64_t expand_counter(uint64_t reference, uint32_t low) {
  const auto ahead = static_cast<int32_t>(low - static_cast<uint32_t>(reference));
  const uint64_t counter = reference + static_cast<uint64_t>(int64_t{ahead});
  return ahead < 0 && counter > reference ? counter + (uint64_t{1} << 32) : counter;
}

// The bytes that a packet's tag covers without enciphering them.
class Clear {
 public:
  std::span<const uint8_t> of(std::span<const uint8_t> header, std::span<const uint8_t> payload,
                              wire::Coverage coverage) {
    if (payload.empty()) return header;
    if (payload.size() <= kShortPayload) return join(header, payload);
    if (coverage == wire::Coverage::kHeader) return header;
    std::array<uint8_t, wire::kChecksumBytes> sum;
    wire::store_checksum(wire::checksum({}, payload, coverage), sum);
    return join(header, sum);
  }

 private:
  std::span<const uint8_t> join(std::span<const uint8_t> header, std::span<const uint8_t> more) {
    std::memcpy(bytes_.data(), header.data(), header.size());
    std::memcpy(bytes_.data() + header.size(), more.data(), more.size());
    return std::span(bytes_).first(header.size() + more.size());
  }
  std::array<uint8_t, wire::kDataHeaderBytes + kShortPayload> bytes_;
};

}  // namespace

PacketGuard::PacketGuard(const Config& config)
    : sealing_(config.send, config.packets_per_key_log2),
      opening_(config.receive, config.packets_per_key_log2),
      window_(config.replay_window),
      security_(config.security),
      coverage_(config.coverage) {}

Bytes PacketGuard::bytes(uint32_t replay_window) {
  constexpr Bytes kCiphers = 3;
  return sizeof(PacketGuard) + kCiphers * PacketCipher::bytes() + replay_window / 8;
}

void PacketGuard::seal(std::span<const uint8_t> header, std::span<const uint8_t> payload,
                       uint8_t* enciphered, std::span<uint8_t> trailer) {
  const uint64_t counter = sealing_.count();
  wire::store_be32(static_cast<uint32_t>(counter), trailer.data());
  const KeyedCipher& keyed = sealing_.current();
  const auto nonce = keyed.nonce(counter, static_cast<uint32_t>(payload.size()));
  const auto tag = trailer.subspan(kCounterBytes);
  if (enciphers()) {
    keyed.cipher.seal(nonce, header, payload, enciphered, tag);
  } else {
    keyed.cipher.seal(nonce, Clear().of(header, payload, coverage_), {}, nullptr, tag);
  }
}

PacketGuard::Verdict PacketGuard::open(std::span<const uint8_t> header,
                                       std::span<const uint8_t> payload,
                                       std::span<const uint8_t> trailer, uint8_t* room) {
  const uint64_t counter = expand_counter(window_.newest(), wire::load_be32(trailer.data()));
  if (!window_.fresh(counter)) return Verdict::kReplayed;
  const KeyedCipher* const keyed = opening_.of(counter);
  if (keyed == nullptr) return Verdict::kForged;
  const auto nonce = keyed->nonce(counter, static_cast<uint32_t>(payload.size()));
  const auto tag = trailer.subspan(kCounterBytes);
  if (enciphers()) {
    if (!keyed->cipher.open(nonce, header, payload, room, tag)) return Verdict::kForged;
  } else {
    Clear clear;
    const auto covered = clear.of(header, payload, coverage_);
    if (!keyed->cipher.open(nonce, covered, {}, nullptr, tag)) return Verdict::kForged;
  }
  opening_.opened(counter);
  window_.take(counter);
  return Verdict::kGood;
}

}  // namespace pacecar
