// What the attacks share: their knowledge of the victims, and the frames to send. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/attack/overheard.h"
#include "transport/base/packet_modes.h"
#include "transport/base/prng.h"

namespace pacecar::attack {

inline constexpr size_t kMostBytes = 8900;  // of a datagram: below the tests' MTU of 9000

struct Knowledge {
  Overheard captured;
  Prng prng;
  // PACECAR_SECURITY of the victims. With kOff packets end with a checksum, which the attacker
  // computes.
  Security security;
};

// The frames to send to each victim.
class Volley {
 public:
  void add(size_t to, const Datagram& datagram) { encode(datagram, next(to)); }
  // A further frame to this victim, for the caller to write.
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
    std::vector<Bytes> frames;  // kept by clear(), so that their memory is reused
    size_t used = 0;
  };
  std::array<Side, 2> sides_;
};

class Attack {
 public:
  virtual ~Attack() = default;
  // Adds frames to the volley, or none.
  virtual void shoot(Knowledge& knowledge, Volley& volley) = 0;
  // Whether the attack needs the victims' newest packets.
  virtual bool always_captures() const { return false; }
};

inline constexpr std::array kAttacks{"replay", "reorder",  "reflect", "forge", "trim",
                                     "sweep",  "truncate", "flood",   "icmp"};
// `name` is one of kAttacks.
std::unique_ptr<Attack> make_attack(const std::string& name);

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
// The number of the packet's destination queue pair.
uint32_t queue_pair_of(const Bytes& packet);
void address_to(uint32_t queue_pair, Bytes& packet);
// Ends a forged packet with a checksum, or with `counter` and a random tag.
void finish(Knowledge& knowledge, size_t header_bytes, uint32_t counter, Bytes& packet);
// The counter of a captured packet that is alone in its datagram.
uint32_t counter_of(const Knowledge& knowledge, const Bytes& packet);

}  // namespace pacecar::attack
