// Forged ICMP errors: destination unreachable, packet too big, time exceeded, parameter problem.
#include "tests/attack/attack.h"

namespace pacecar::attack {
namespace {

constexpr uint8_t kUnreachable = 3, kTimeExceeded = 11, kParameterProblem = 12;
constexpr uint8_t kUnreachableCodes = 16;
constexpr uint8_t kPortUnreachable = 3, kFragmentationNeeded = 4;
constexpr uint32_t kRouter = 0xC00002FD;  // 192.0.2.253

class Icmp final : public Attack {
 public:
  void shoot(Knowledge& knowledge, Volley& volley) override {
    Prng& prng = knowledge.prng;
    const size_t to = prng.below(2);
    const Datagram& quoted = *knowledge.captured.any(to, prng);
    const uint32_t from = prng.chance(0.5) ? kRouter : quoted.to.ip;
    encode(draw(prng), quoted, from, volley.next(to));
  }

 private:
  static IcmpError draw(Prng& prng) {
    switch (prng.below(8)) {
      case 0: return {.type = kTimeExceeded};
      case 1: return {.type = kParameterProblem};
      case 2:
        return {.type = kUnreachable, .code = static_cast<uint8_t>(prng.below(kUnreachableCodes))};
      case 3:
      case 4: {  // with the next hop's MTU
        const auto mtu = static_cast<uint32_t>(prng.below(2000));
        return {.type = kUnreachable, .code = kFragmentationNeeded, .word = mtu};
      }
      default: return {.type = kUnreachable, .code = kPortUnreachable};
    }
  }
};

}  // namespace

std::unique_ptr<Attack> make_icmp() { return std::make_unique<Icmp>(); }

}  // namespace pacecar::attack
