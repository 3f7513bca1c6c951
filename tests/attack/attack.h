// What the attacks have in common: what they know, and where they put what is to be sent.
// One thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/attack/overheard.h"
#include "transport/base/prng.h"
#include "transport/base/security.h"

namespace pacecar::attack {

inline constexpr size_t kMostBytes = 8900;  // of a datagram: below the tests' MTU of 9000

struct Knowledge {
  Overheard heard;
  Prng prng;
  // How the victims end their packets. Where that is with a checksum, the attacker makes it right.
  Security security;
};

// Frames to send, to each victim.
class Volley {
 public:
  void add(size_t to, const Datagram& datagram) { encode(datagram, next(to)); }
  // A frame to be written.
  Bytes& next(size_t to) {
    auto& [frames, used] = sides_[to];
    if (frames.size() == used) frames.emplace_back();
    return frames[used++];
  }
  std::span<const Bytes> frames(size_t to) const {
    return {sides_[to].frames.data(), sides_[to].used};
  }
  size_t size() const { return sides_[0].used + sides_[1].used; }
  void clear() { sides_[0].used = sides_[1].used = 0; }

 private:
  struct Side {
    std::vector<Bytes> frames;  // their memory is used again
    size_t used = 0;
  };
  std::array<Side, 2> sides_;
};

class Attack {
 public:
  virtual ~Attack() = default;
  // Adds something to the volley, in which there is room for as much.
  virtual void shoot(Knowledge& knowledge, Volley& volley) = 0;
  // It lives on what is being said at this moment.
  virtual bool always_listens() const { return false; }
};

inline constexpr std::array kAttacks{"replay", "reorder",  "reflect", "forge", "trim",
                                     "sweep",  "truncate", "flood",   "icmp"};
// Of one of these names.
std::unique_ptr<Attack> make_attack(const std::string& name);

// The parts of it; each in a file of its own.
std::unique_ptr<Attack> make_replay();
std::unique_ptr<Attack> make_reorder();
std::unique_ptr<Attack> make_reflect();
std::unique_ptr<Attack> make_forge();
std::unique_ptr<Attack> make_trim();
std::unique_ptr<Attack> make_sweep();
std::unique_ptr<Attack> make_truncate();
std::unique_ptr<Attack> make_flood();
std::unique_ptr<Attack> make_icmp();

// --- what attacks on packets share ---

void fill_random(Prng& prng, std::span<uint8_t> bytes);
// Of a packet's destination.
uint32_t queue_pair_of(const Bytes& packet);
void address_to(uint32_t queue_pair, Bytes& packet);
// Ends a packet that is the attacker's own. `counter`: what a seal would say.
void finish(Knowledge& knowledge, size_t header_bytes, uint32_t counter, Bytes& packet);
// That of a packet heard, which has no others behind it.
uint32_t counter_of(const Knowledge& knowledge, const Bytes& packet);

}  // namespace pacecar::attack
