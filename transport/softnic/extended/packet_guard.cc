#include "transport/softnic/extended/packet_guard.h"

#include <array>
#include <cstring>

#include "transport/base/check.h"
#include "transport/wire/big_endian.h"
#include "transport/wire/extended.h"

namespace pacecar {
namespace {

constexpr size_t kCounterBytes = 4;
// The tag covers payloads of up to this size as a whole: a message of 128 bytes with the 24 bytes
// of an eager message's header.
constexpr size_t kShortPayload = 152;

// The counter nearest to `reference` whose low 32 bits are those. A forged packet may name one that
// no peer ever reaches; then its tag is wrong.
uint64_t expand_counter(uint64_t reference, uint32_t low) {
  const auto ahead = static_cast<int32_t>(low - static_cast<uint32_t>(reference));
  return reference + static_cast<uint64_t>(int64_t{ahead});
}

std::span<const uint8_t> join(std::span<const uint8_t> header, std::span<const uint8_t> more,
                              std::span<uint8_t> to) {
  PACECAR_CHECK(header.size() + more.size() <= to.size());
  std::memcpy(to.data(), header.data(), header.size());
  std::memcpy(to.data() + header.size(), more.data(), more.size());
  return to.first(header.size() + more.size());
}

// Not inlined, because it takes 64 KiB of the stack, and few packets need it.
template <typename Call>
[[gnu::noinline]] auto with_whole(std::span<const uint8_t> header, std::span<const uint8_t> payload,
                                  Call call) {
  std::array<uint8_t, wire::kPieceHeaderBytes + wire::kMaxDatagramBytes> bytes;
  return call(join(header, payload, bytes));
}

}  // namespace

PacketGuard::PacketGuard(const Config& config)
    : sealing_(config.send, config.packets_per_key_log2),
      opening_(config.receive, config.packets_per_key_log2),
      window_(config.replay_window),
      security_(config.security),
      coverage_(config.coverage),
      whole_payloads_(config.whole_payloads) {}

// Calls call(bytes) with the bytes that the tag of an unencrypted packet covers.
template <typename Call>
auto PacketGuard::with_clear(std::span<const uint8_t> header, std::span<const uint8_t> payload,
                             Call call) const {
  if (payload.empty()) return call(header);
  std::array<uint8_t, wire::kPieceHeaderBytes + kShortPayload> bytes;
  if (payload.size() <= kShortPayload) return call(join(header, payload, bytes));
  if (whole_payloads_) return with_whole(header, payload, call);
  if (coverage_ == wire::Coverage::kHeader) return call(header);
  std::array<uint8_t, wire::kChecksumBytes> sum;
  wire::store_checksum(wire::checksum({}, payload, coverage_), sum);
  return call(join(header, sum, bytes));
}

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
    with_clear(header, payload, [&](std::span<const uint8_t> clear) {
      keyed.cipher.seal(nonce, clear, {}, nullptr, tag);
    });
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
  const bool good = enciphers() ? keyed->cipher.open(nonce, header, payload, room, tag)
                                : with_clear(header, payload, [&](std::span<const uint8_t> clear) {
                                    return keyed->cipher.open(nonce, clear, {}, nullptr, tag);
                                  });
  if (!good) return Verdict::kForged;
  opening_.opened(counter);
  window_.take(counter);
  return Verdict::kGood;
}

}  // namespace pacecar
