// ShareTable: shared memory in which the processes of a host that use the same NIC publish their
// claims to its link's two directions. It has a slot for each process, and for each direction a
// generation that grows with every change. Zeroed memory is an empty table, so no set-up can be
// left half done. A slot belongs to the process whose owner word is in it, taken by
// compare-and-swap; every other word has one writer and is valid by itself. So a process may be
// killed between any two writes. All values are bounded when read.
// `Word` is std::atomic<uint64_t>; the model checker has one of its own. Rates are in bit/s, times
// in ns of the clock that all processes of the host share. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cc/host_link.h"
#include "transport/base/units.h"

namespace pacecar {

enum class LinkDirection : uint8_t { kOutgoing, kIncoming };

inline constexpr size_t kShareSlots = 64;
// How often a process with a demand writes a beat.
inline constexpr Duration kShareBeat = Duration::from_ms(10);
// A process whose own beat is older than this starts again: others may soon count it as idle.
inline constexpr Duration kShareOwnSilence = Duration::from_ms(25);
// A process whose beat is older than this counts as idle.
inline constexpr Duration kShareSilence = Duration::from_ms(50);

template <typename Word>
struct BasicShareTable {
  struct Direction {
    Word claim;   // ClaimWord
    Word taking;  // the part in use, bit/s
    Word beat;    // when its owner last wrote, while it has a demand
    Word learnt;  // its owner's learnt rate, bit/s; 0: the nominal rate, or unused
  };
  struct alignas(64) Slot {
    Word owner;  // 0: free
    std::array<Direction, 2> directions;
    Word capacity;             // the link's rate, as its owner has it
    std::array<Word, 2> name;  // of the program, for people
  };
  struct alignas(64) Generation {
    Word number;
  };

  std::array<Generation, 2> generations;
  std::array<Slot, kShareSlots> slots;
};

using ShareTable = BasicShareTable<std::atomic<uint64_t>>;
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(sizeof(ShareTable::Slot) == 128 && sizeof(ShareTable) == 128 + 128 * kShareSlots);

// A LinkClaim as one word, so that it is always seen whole: demand, weight, ready.
class ClaimWord {
 public:
  static constexpr uint64_t kMostDemand = (uint64_t{1} << 44) - 1;  // 17 Tb/s
  static constexpr uint32_t kMostWeight = (1U << 19) - 1;

  static uint64_t encode(const LinkClaim& claim) {
    return std::min(claim.demand.bps(), kMostDemand) << 20 |
           uint64_t{std::min(claim.weight, kMostWeight)} << 1 | (claim.ready ? 1 : 0);
  }
  // Accepts any 64 bits.
  static LinkClaim decode(uint64_t word) {
    return {.demand = Rate::from_bps(word >> 20),
            .weight = static_cast<uint32_t>(word >> 1) & kMostWeight,
            .ready = (word & 1) != 0};
  }
};

// Whether the owner of a beat counts as alive. A beat slightly in the future was written after we
// had read the clock; one far in the future is invalid.
inline bool share_beat_lives(uint64_t beat, Instant now, Duration silence = kShareSilence) {
  constexpr auto kFuture = static_cast<uint64_t>(Duration::from_ms(100).ns());
  const uint64_t age = static_cast<uint64_t>(now.ns()) - beat;
  return age <= static_cast<uint64_t>(silence.ns()) || uint64_t{0} - age < kFuture;
}

}  // namespace pacecar
