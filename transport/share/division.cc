#include "transport/share/division.h"

#include <algorithm>

namespace pacecar {

using Wide = unsigned __int128;

uint64_t part_of(uint64_t amount, uint64_t part, uint64_t whole) {
  return static_cast<uint64_t>(Wide{amount} * part / whole);
}

// Each pass meets the demands below the remaining capacity's level; mostly two or three are needed.
void divide_link(uint64_t capacity, std::span<ShareOfLink> shares) {
  uint64_t left = capacity;
  uint64_t weights = 0;  // of the unmet ones
  for (ShareOfLink& share : shares) {
    share.fair = 0;
    share.met = share.demand == 0;
    if (!share.met) weights += share.weight;
  }
  const uint64_t all_weights = weights;
  for (bool again = true; again;) {
    again = false;
    const uint64_t level = left;
    const uint64_t level_weights = weights;
    for (ShareOfLink& share : shares) {
      const uint64_t demand = std::min(share.demand, capacity);
      if (share.met || Wide{demand} * level_weights > Wide{level} * share.weight) continue;
      share.met = again = true;
      share.fair = demand;
      left -= demand;
      weights -= share.weight;
    }
  }
  for (ShareOfLink& share : shares) {
    if (!share.met) share.fair = part_of(left, share.weight, weights);
    if (weights == 0 && share.demand > 0) share.fair += part_of(left, share.weight, all_weights);
  }
}

}  // namespace pacecar
