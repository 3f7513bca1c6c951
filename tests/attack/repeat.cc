// Attacks with packets as they were heard: again, in another order, and to those who sent them.
#include <algorithm>
#include <utility>

#include "tests/attack/attack.h"

namespace pacecar::attack {
namespace {

constexpr size_t kVictims = 2;

// What has just been said, at once; or what was said some time ago; a few times or many.
class Replay final : public Attack {
 public:
  void shoot(Knowledge& knowledge, Volley& volley) override {
    Prng& prng = knowledge.prng;
    const size_t from = prng.below(kVictims);
    const Datagram* const again =
        prng.chance(0.5) ? knowledge.heard.newest(from) : knowledge.heard.any(from, prng);
    const size_t times = prng.chance(0.1) ? 32 : 1 + prng.below(3);
    for (size_t i = 0; i < times; ++i) volley.add(1 - from, *again);
  }
  bool always_listens() const override { return true; }
};

// The newest data, last first.
class Reorder final : public Attack {
 public:
  void shoot(Knowledge& knowledge, Volley& volley) override {
    constexpr size_t kMost = 64;
    const size_t from = knowledge.prng.below(kVictims);
    const auto copies = knowledge.heard.backwards(from, 1 + knowledge.prng.below(kMost));
    for (const Datagram* copy : copies) volley.add(1 - from, *copy);
    // Who sends no data has said something else.
    if (copies.empty()) volley.add(1 - from, *knowledge.heard.newest(from));
  }
  bool always_listens() const override { return true; }
};

// In the name of the peer, to the sender: to the number that he wrote, or to one of his own.
class Reflect final : public Attack {
 public:
  void shoot(Knowledge& knowledge, Volley& volley) override {
    Prng& prng = knowledge.prng;
    const size_t from = prng.below(kVictims);
    const Datagram& towards = *knowledge.heard.any(1 - from, prng);
    Datagram back = *knowledge.heard.any(from, prng);
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
