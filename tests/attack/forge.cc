// Packets in the name of a victim: all fields are valid but the forged ones and the tag.
#include <algorithm>
#include <limits>
#include <vector>

#include "tests/attack/attack.h"
#include "transport/wire/big_endian.h"
#include "transport/wire/extended.h"

namespace pacecar::attack {
namespace {

constexpr uint32_t kNumbers = 1 << 24;  // of queue pairs, and of PSNs

uint32_t draw(Prng& prng) { return static_cast<uint32_t>(prng.next_u64()); }

// A number near this one, or a random one.
uint32_t elsewhere(Prng& prng, uint32_t number) {
  return prng.chance(0.5) ? number + static_cast<uint32_t>(prng.below(64)) - 32 : draw(prng);
}

class Forge final : public Attack {
 public:
  // `trims_only`: only trimmed headers, which no tag covers.
  explicit Forge(bool trims_only = false) : trims_only_(trims_only) {}

  void shoot(Knowledge& knowledge, Volley& volley) override {
    constexpr std::array kWays{&Forge::data, &Forge::acknowledge, &Forge::refuse,
                               &Forge::trim, &Forge::count,       &Forge::retag};
    Prng& prng = knowledge.prng;
    to_ = prng.below(2);
    (this->*(trims_only_ ? &Forge::trim : kWays[prng.below(kWays.size())]))(knowledge);
    if (!made_.payload.empty()) volley.add(to_, made_);
    made_.payload.clear();
  }

 private:
  // Takes a captured data packet to the victim; false: none was captured.
  bool take_data(Knowledge& knowledge, wire::DataHeader& header) {
    const Datagram* const captured = knowledge.captured.any(1 - to_, Kind::kData, knowledge.prng);
    if (captured == nullptr) return false;
    if (!wire::decode_trimmed(std::span(captured->payload).first(wire::kDataHeaderBytes), header)) {
      return false;
    }
    made_ = *captured;
    counter_ = counter_of(knowledge, captured->payload);
    return true;
  }

  // Data with a changed header.
  void data(Knowledge& knowledge) {
    Prng& prng = knowledge.prng;
    wire::DataHeader header;
    if (!take_data(knowledge, header)) return;
    switch (prng.below(7)) {
      case 0: header.address += prng.chance(0.5) ? prng.below(1 << 20) : prng.next_u64(); break;
      case 1: header.key = elsewhere(prng, header.key); break;
      case 2: header.length = draw(prng) | 0xffff; break;
      case 3: header.msn = elsewhere(prng, header.msn) % kNumbers; break;
      case 4: header.destination_qp = elsewhere(prng, header.destination_qp) % kNumbers; break;
      case 5: header.timestamp = draw(prng); break;
      default: header.taken_back = true; break;
    }
    header.psn = elsewhere(prng, header.psn) % kNumbers;
    header.ack_request = prng.chance(0.5);
    const size_t end = made_.payload.size() - std::min(made_.payload.size(), kSealed);
    made_.payload.resize(header.taken_back ? wire::kDataHeaderBytes
                                           : std::max(end, wire::kDataHeaderBytes));
    wire::encode(header, std::span(made_.payload).first<wire::kDataHeaderBytes>());
    finish(knowledge, wire::kDataHeaderBytes, counter_ + draw(prng) % 1000, made_.payload);
  }

  // An acknowledgement of packets in flight, delivered or never sent.
  void acknowledge(Knowledge& knowledge) {
    Prng& prng = knowledge.prng;
    const Datagram* const from = knowledge.captured.any(1 - to_, prng);
    const Datagram* const sent = knowledge.captured.any(to_, Kind::kData, prng);
    wire::DataHeader header;
    if (sent != nullptr &&
        !wire::decode_trimmed(std::span(sent->payload).first(wire::kDataHeaderBytes), header)) {
      return;
    }
    made_ = *from;
    const wire::AckHeader ack{.destination_qp = queue_pair_of(from->payload),
                              .cumulative = elsewhere(prng, header.psn) % kNumbers,
                              .echo_timestamp = header.timestamp,
                              .hold_ns = draw(prng) % 1'000'000,
                              .received = draw(prng),
                              .marked = draw(prng),
                              .echo_psn = header.psn,
                              .echo_valid = prng.chance(0.5),
                              .echo_marked = prng.chance(0.5)};
    const std::vector<uint64_t> all(prng.below(130), ~uint64_t{0});
    made_.payload.assign(wire::ack_bytes(all.size()), 0);
    wire::encode(ack, all, {}, made_.payload);
    finish(knowledge, made_.payload.size(), draw(prng) % kNumbers, made_.payload);
  }

  // A refusal (NAK) of a packet that the victim sent.
  void refuse(Knowledge& knowledge) {
    Prng& prng = knowledge.prng;
    const Datagram* const sent = knowledge.captured.any(to_, Kind::kData, prng);
    wire::DataHeader header;
    if (sent == nullptr ||
        !wire::decode_trimmed(std::span(sent->payload).first(wire::kDataHeaderBytes), header)) {
      return;
    }
    made_ = *knowledge.captured.any(1 - to_, prng);
    const wire::Nak nak{.destination_qp = queue_pair_of(made_.payload),
                        .psn = header.psn,
                        .echo_timestamp = header.timestamp,
                        .syndrome = prng.chance(0.5) ? wire::Syndrome::kTrimmed
                                                     : wire::Syndrome::kRemoteAccessError};
    made_.payload.assign(wire::kNakBytes, 0);
    wire::encode(nak, std::span(made_.payload).first<wire::kNakBytes>());
    finish(knowledge, wire::kNakBytes, draw(prng) % kNumbers, made_.payload);
  }

  // The trimmed header of a captured packet, or of one of the next packets.
  void trim(Knowledge& knowledge) {
    Prng& prng = knowledge.prng;
    wire::DataHeader header;
    if (!take_data(knowledge, header)) return;
    if (prng.chance(0.8)) header.psn = (header.psn + draw(prng) % 2048) % kNumbers;
    made_.payload.resize(wire::kDataHeaderBytes);
    wire::encode(header, std::span(made_.payload).first<wire::kDataHeaderBytes>());
  }

  // A packet whose counter is far ahead or behind.
  void count(Knowledge& knowledge) {
    Prng& prng = knowledge.prng;
    made_ = *knowledge.captured.any(1 - to_, prng);
    Bytes& packet = made_.payload;
    if (knowledge.security == Security::kOff || packet.size() < kSealed) return;
    const size_t trailer = knowledge.security == Security::kAuth ? kShortSeal : kSealed;
    const uint32_t distance = uint32_t{1} << prng.below(32);
    uint8_t* const at = &packet[packet.size() - trailer];
    wire::store_be32(wire::load_be32(at) + (prng.chance(0.5) ? distance : 0 - distance), at);
  }

  // A packet with a random tag; of joined packets the last one's tag.
  void retag(Knowledge& knowledge) {
    made_ = *knowledge.captured.any(1 - to_, knowledge.prng);
    Bytes& packet = made_.payload;
    fill_random(knowledge.prng, std::span(packet).last(std::min<size_t>(packet.size(), 8)));
  }

  static constexpr size_t kShortSeal = 12, kSealed = 20;

  const bool trims_only_;
  size_t to_ = 0;
  Datagram made_;
  uint32_t counter_ = 0;
};

// Packets to every queue pair number in turn, by a blind attacker, who knows address and port only.
class Sweep final : public Attack {
 public:
  void shoot(Knowledge& knowledge, Volley& volley) override {
    Prng& prng = knowledge.prng;
    const size_t to = prng.below(2);
    made_ = *knowledge.captured.newest(1 - to);
    Bytes& packet = made_.payload;
    const uint32_t psn = draw(prng) % kNumbers;
    switch (prng.below(3)) {
      case 0:
        packet.assign(wire::kDataHeaderBytes, 0);
        wire::encode(wire::DataHeader{.taken_back = prng.chance(0.5), .psn = psn},
                     std::span(packet).first<wire::kDataHeaderBytes>());
        break;
      case 1:
        packet.assign(wire::kAckHeaderBytes, 0);
        wire::encode(wire::AckHeader{.cumulative = psn}, {}, {}, packet);
        break;
      default:
        packet.assign(wire::kNakBytes, 0);
        wire::encode(wire::Nak{.psn = psn}, std::span(packet).first<wire::kNakBytes>());
        break;
    }
    address_to(next_++, packet);
    finish(knowledge, packet.size(), draw(prng), packet);
    volley.add(to, made_);
  }

 private:
  uint32_t next_ = 0;
  Datagram made_;
};

}  // namespace

std::unique_ptr<Attack> make_forge() { return std::make_unique<Forge>(); }
std::unique_ptr<Attack> make_trim() { return std::make_unique<Forge>(true); }
std::unique_ptr<Attack> make_sweep() { return std::make_unique<Sweep>(); }

}  // namespace pacecar::attack
