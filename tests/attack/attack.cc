#include "tests/attack/attack.h"

#include <algorithm>
#include <stdexcept>

#include "transport/softnic/extended/packet_guard.h"
#include "transport/wire/big_endian.h"
#include "transport/wire/checksum.h"

namespace pacecar::attack {

std::unique_ptr<Attack> make_attack(const std::string& name) {
  constexpr std::array kMakers{make_replay, make_reorder,  make_reflect, make_forge, make_trim,
                               make_sweep,  make_truncate, make_flood,   make_icmp};
  static_assert(kMakers.size() == kAttacks.size());
  for (size_t i = 0; i < kAttacks.size(); ++i) {
    if (name == kAttacks[i]) return kMakers[i]();
  }
  throw std::invalid_argument("no attack is called '" + name + "': see --help");
}

void fill_random(Prng& prng, std::span<uint8_t> bytes) {
  for (size_t i = 0; i < bytes.size(); i += 8) {
    uint64_t word = prng.next_u64();
    for (size_t j = i; j < std::min(i + 8, bytes.size()); ++j, word >>= 8) {
      bytes[j] = static_cast<uint8_t>(word);
    }
  }
}

uint32_t queue_pair_of(const Bytes& packet) {
  return packet.size() < 8 ? 0 : wire::load_be32(&packet[4]) & 0xffffff;
}

void address_to(uint32_t queue_pair, Bytes& packet) {
  if (packet.size() >= 8) wire::store_be32(queue_pair & 0xffffff, &packet[4]);
}

void finish(Knowledge& knowledge, size_t header_bytes, uint32_t counter, Bytes& packet) {
  const size_t body = packet.size();
  packet.resize(body + trailer_bytes(knowledge.security));
  const auto trailer = std::span(packet).subspan(body);
  if (knowledge.security == Security::kOff) {
    const auto header = std::span<const uint8_t>(packet).first(header_bytes);
    wire::store_checksum(wire::checksum(header, {}, wire::Coverage::kHeader),
                         trailer.first<wire::kChecksumBytes>());
    return;
  }
  fill_random(knowledge.prng, trailer);
  wire::store_be32(counter, trailer.data());
}

uint32_t counter_of(const Knowledge& knowledge, const Bytes& packet) {
  const size_t trailer = trailer_bytes(knowledge.security);
  return packet.size() < trailer ? 0 : wire::load_be32(&packet[packet.size() - trailer]);
}

}  // namespace pacecar::attack
