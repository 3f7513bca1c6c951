// How one direction of a link is divided: weighted max-min of the processes' demands. In integers,
// so that all compute the same parts from the same claims, never more than the link in all. Pure.
#pragma once

#include <cstdint>
#include <span>

namespace pacecar {

struct ShareOfLink {
  uint64_t demand = 0;  // bit/s; more than the link counts as the link; 0: gets nothing
  uint64_t weight = 1;  // at least 1
  uint64_t fair = 0;    // the result, bit/s
  bool met = false;     // fair is the whole demand, or more
};

// amount * part / whole, rounded down. `part` is at most `whole`.
uint64_t part_of(uint64_t amount, uint64_t part, uint64_t whole);

// fair = min(weight * level, demand), which add up to `capacity`. When all demands are met, the
// remainder is divided by weight, so that a process can show that it could use more.
void divide_link(uint64_t capacity, std::span<ShareOfLink> shares);

}  // namespace pacecar
