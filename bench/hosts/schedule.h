// The order in which pairs are measured. Pure.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace pacecar::hosts {

struct Pair {
  size_t sender = 0;
  size_t receiver = 0;

  bool operator==(const Pair&) const = default;
};

// Pairs that are measured at the same time.
using Round = std::vector<Pair>;

enum class Pairs {
  kDisjoint,  // all ordered pairs; in a round each host is in one pair at most
  kAll,       // all ordered pairs, one at a time
  kRing,      // each host and the next, both ways; rounds as of kDisjoint
};
// For "disjoint", "all", "ring".
Pairs pairs_of(std::string_view name);

// Each pair is in one round. Fewer than two hosts have no pairs.
std::vector<Round> schedule(size_t hosts, Pairs pairs);

}  // namespace pacecar::hosts
