#include "transport/verbs/lane_ledger.h"

namespace pacecar {

size_t choose_lane(std::span<const Bytes> in_flight, size_t turn) {
  size_t best = turn % in_flight.size();
  for (size_t i = 1; i < in_flight.size(); ++i) {
    const size_t lane = (turn + i) % in_flight.size();
    if (in_flight[lane] < in_flight[best]) best = lane;
  }
  return best;
}

}  // namespace pacecar
