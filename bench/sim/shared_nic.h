// What the processes of a simulated host tell one another of the NIC that they share: the table in
// which each has a slot, and a look at it. Real processes poll the table; here whoever has taken a
// step lets the others look. Thread rule: one thread.
#pragma once

#include <vector>

#include "transport/share/share_table.h"

namespace pacecar {

class SimHost;

struct SharedNic {
  // From a change to the poll of another process that sees it; time goes on between two that
  // answer each other.
  static constexpr Duration kPoll = Duration::from_ns(100);

  ShareTable table{};
  std::vector<SimHost*> processes;
};

}  // namespace pacecar
