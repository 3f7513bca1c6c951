// Random bytes to the victims' ports, from random ports and addresses.
#include <algorithm>

#include "tests/attack/attack.h"
#include "transport/wire/extended.h"

namespace pacecar::attack {
namespace {

constexpr size_t kGarbage = 1 << 16;
constexpr size_t kShortBytes = 120;
// Networks for documentation (RFC 5737); the victims are in the first.
constexpr std::array<uint32_t, 3> kNetworks{0xC0000200, 0xC6336400, 0xCB007100};

class Flood final : public Attack {
 public:
  void shoot(Knowledge& knowledge, Volley& volley) override {
    Prng& prng = knowledge.prng;
    if (garbage_.empty()) {
      garbage_.resize(kGarbage);
      fill_random(prng, garbage_);
    }
    const size_t to = prng.below(2);
    const Datagram& captured = *knowledge.captured.newest(1 - to);
    made_.from = captured.from;
    made_.to = captured.to;
    made_.from.port = static_cast<uint16_t>(prng.next_u64());
    if (prng.chance(0.5)) {
      const uint32_t network = kNetworks[prng.below(kNetworks.size())];
      made_.from.ip = network | static_cast<uint32_t>(prng.below(256));
    }
    const size_t size = prng.below(prng.chance(0.9) ? kShortBytes : kMostBytes);
    const auto begin = garbage_.begin() + static_cast<ptrdiff_t>(prng.below(kGarbage - size));
    made_.payload.assign(begin, begin + static_cast<ptrdiff_t>(size));
    if (size >= wire::kNakBytes && prng.chance(0.5)) {  // with the first bytes of a captured packet
      std::copy_n(captured.payload.begin(), std::min<size_t>(8, captured.payload.size()),
                  made_.payload.begin());
    }
    volley.add(to, made_);
  }

 private:
  Bytes garbage_;
  Datagram made_;
};

}  // namespace

std::unique_ptr<Attack> make_flood() { return std::make_unique<Flood>(); }

}  // namespace pacecar::attack
