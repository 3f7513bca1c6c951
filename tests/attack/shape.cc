// Packets of another length, or glued together, with lies about how long they are.
#include <algorithm>

#include "tests/attack/attack.h"
#include "transport/wire/big_endian.h"
#include "transport/wire/extended.h"

namespace pacecar::attack {
namespace {

constexpr size_t kMostBytes = 8900;  // of a datagram: below the least MTU of the tests

class Truncate final : public Attack {
 public:
  void shoot(Knowledge& knowledge, Volley& volley) override {
    Prng& prng = knowledge.prng;
    const size_t from = prng.below(2);
    made_ = *knowledge.heard.any(from, prng);
    switch (prng.below(4)) {
      case 0:
        cut(prng);
        break;
      case 1:
        extend(prng, prng.below(200));
        break;
      case 2:
        glue(knowledge, from);
        break;
      default:
        lie(prng);
        break;
    }
    made_.payload.resize(std::min(made_.payload.size(), kMostBytes));
    volley.add(1 - from, made_);
  }

 private:
  void cut(Prng& prng) { made_.payload.resize(prng.below(made_.payload.size() + 1)); }

  void extend(Prng& prng, size_t more) {
    const size_t end = made_.payload.size();
    made_.payload.resize(end + more);
    fill_random(prng, std::span(made_.payload).subspan(end));
  }

  // Several that were heard in one datagram, and a length that may be right.
  void glue(Knowledge& knowledge, size_t from) {
    Prng& prng = knowledge.prng;
    Bytes& packet = made_.payload;
    const size_t first = packet.size();
    for (size_t more = 1 + prng.below(20); more > 0 && packet.size() < kMostBytes / 2; --more) {
      const Bytes& other = knowledge.heard.any(from, prng)->payload;
      packet.insert(packet.end(), other.begin(), other.end());
    }
    if (packet.size() > wire::kFlagsAt) packet[wire::kFlagsAt] |= wire::kDataJoined;
    end_with(prng.chance(0.5) ? packet.size() - first : prng.next_u64());
  }

  // "Others follow", and how many bytes: none, all, more than there are.
  void lie(Prng& prng) {
    Bytes& packet = made_.payload;
    if (packet.size() > wire::kFlagsAt) packet[wire::kFlagsAt] |= wire::kDataJoined;
    const std::array<uint64_t, 5> lies{0, 1, packet.size(), 0xffff, prng.next_u64()};
    end_with(lies[prng.below(lies.size())]);
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
