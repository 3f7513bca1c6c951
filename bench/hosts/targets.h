// The targets of a command line: hosts, and how to reach them.
#pragma once

#include <vector>

#include "bench/hosts/host_list.h"
#include "bench/hosts/launcher.h"
#include "bench/perf/hosts_flags.h"
#include "transport/base/result.h"

namespace pacecar::hosts {

struct Targets {
  std::vector<Host> hosts;
  Launcher launcher;
};

// Errors: those of read_hosts() and Launcher::parse().
Result<Targets> targets_of(const perf::HostsFlags& flags);

}  // namespace pacecar::hosts
