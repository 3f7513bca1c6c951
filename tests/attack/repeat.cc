// Captured packets, unchanged: sent again, in another order, or back to their sender.
#include <algorithm>
#include <utility>

#include "tests/attack/attack.h"

namespace pacecar::attack {
namespace {

constexpr size_t kVictims = 2;

// The newest datagram, or an older one, up to 32 times.
class Replay final : public Attack {
 public:
  void shoot(Knowledge& knowledge, Volley& volley) override {
    Prng& prng = knowledge.prng;
    const size_t from = prng.below(kVictims);
    const Datagram* const again =
        prng.chance(0.5) ? knowledge.captured.newest(from) : knowledge.captured.any(from, prng);
    const size_t times = prng.chance(0.1) ? 32 : 1 + prng.below(3);
    for (size_t i = 0; i < times; ++i) volley.add(1 - from, *again);
  }
  bool always_captures() const override { return true; }
};

// The newest data, last first.
class Reorder final : public Attack {
 public:
  void shoot(Knowledge& knowledge, Volley& volley) override {
    constexpr size_t kMost = 64;
    const size_t from = knowledge.prng.below(kVictims);
    const auto copies = knowledge.captured.backwards(from, 1 + knowledge.prng.below(kMost));
    for (const Datagram* copy : copies) volley.add(1 - from, *copy);
    // A victim that sends no data: its newest datagram.
    if (copies.empty()) volley.add(1 - from, *knowledge.captured.newest(from));
  }
  bool always_captures() const override { return true; }
};

// Sends a packet back to its sender in the peer's name, to the queue pair number in the packet or
// to one of the sender's own.
class Reflect final : public Attack {
 public:
  void shoot(Knowledge& knowledge, Volley& volley) override {
    Prng& prng = knowledge.prng;
    const size_t from = prng.below(kVictims);
    const Datagram& towards = *knowledge.captured.any(1 - from, prng);
    Datagram back = *knowledge.captured.any(from, prng);
    std::swap(back.from, back.to);
    back.to.port = towards.to.port;
    if (prng.chance(0.5)) address_to(queue_pair_of(towards.payload), back.payload);
    volley.add(from, back);
  }
};

}  // namespace

std::unique_ptr<Attack> make_replay() { return std::make_unique<Replay>(); }
std::unique_ptr<Attack> make_reorder() { return std::make_unique<Reorder>(); }
std::unique_ptr<Attack> make_reflect() { return std::make_unique<Reflect>(); }

}  // namespace pacecar::attack
