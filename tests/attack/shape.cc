// Captured packets that are cut, extended or joined, some with a wrong length.
#include <algorithm>

#include "tests/attack/attack.h"
#include "transport/wire/big_endian.h"
#include "transport/wire/extended.h"

namespace pacecar::attack {
namespace {

class Truncate final : public Attack {
 public:
  void shoot(Knowledge& knowledge, Volley& volley) override {
    Prng& prng = knowledge.prng;
    const size_t from = prng.below(2);
    made_ = *knowledge.captured.any(from, prng);
    switch (prng.below(4)) {
      case 0: cut(prng); break;
      case 1: extend(prng); break;
      case 2: join(knowledge, from); break;
      default: claim(prng); break;
    }
    made_.payload.resize(std::min(made_.payload.size(), kMostBytes));
    volley.add(1 - from, made_);
  }

 private:
  void cut(Prng& prng) { made_.payload.resize(prng.below(made_.payload.size() + 1)); }

  void extend(Prng& prng) {
    const size_t end = made_.payload.size();
    made_.payload.resize(end + prng.below(200));
    fill_random(prng, std::span(made_.payload).subspan(end));
  }

  // Joins several captured packets into one datagram; every second time the length is right.
  void join(Knowledge& knowledge, size_t from) {
    Prng& prng = knowledge.prng;
    Bytes& packet = made_.payload;
    const size_t first = packet.size();
    for (size_t more = 1 + prng.below(20); more > 0 && packet.size() < kMostBytes / 2; --more) {
      const Bytes& other = knowledge.captured.any(from, prng)->payload;
      packet.insert(packet.end(), other.begin(), other.end());
    }
    if (packet.size() > wire::kFlagsAt) packet[wire::kFlagsAt] |= wire::kDataJoined;
    end_with(prng.chance(0.5) ? packet.size() - first : prng.next_u64());
  }

  // Sets the flag that other packets follow, with a length of 0, 1, all, 65,535 or at random.
  void claim(Prng& prng) {
    Bytes& packet = made_.payload;
    if (packet.size() > wire::kFlagsAt) packet[wire::kFlagsAt] |= wire::kDataJoined;
    const std::array<uint64_t, 5> lengths{0, 1, packet.size(), 0xffff, prng.next_u64()};
    end_with(lengths[prng.below(lengths.size())]);
  }

  void end_with(uint64_t length) {
    made_.payload.resize(std::min(made_.payload.size(), kMostBytes - wire::kJoinedBytes) +
                         wire::kJoinedBytes);
    wire::store_be16(static_cast<uint16_t>(length),
                     &made_.payload[made_.payload.size() - wire::kJoinedBytes]);
  }

  Datagram made_;
};

}  // namespace

std::unique_ptr<Attack> make_truncate() { return std::make_unique<Truncate>(); }

}  // namespace pacecar::attack
