// The share table of a simulated host's processes, which use the same NIC. Real processes poll the
// table; here a process that has made a step lets the others read it. Thread rule: one thread.
#pragma once

#include <vector>

#include "transport/share/share_table.h"

namespace pacecar {

class SimHost;

struct SharedNic {
  // The time from a change to another process's poll that sees it.
  static constexpr Duration kPoll = Duration::from_ns(100);

  ShareTable table{};
  std::vector<SimHost*> processes;
};

}  // namespace pacecar
