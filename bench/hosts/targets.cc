#include "bench/hosts/targets.h"

#include "transport/base/return_if_error.h"

namespace pacecar::hosts {

Result<Targets> targets_of(const perf::HostsFlags& flags) {
  ASSIGN_OR_RETURN(auto hosts, read_hosts(flags.hosts));
  ASSIGN_OR_RETURN(auto launcher, Launcher::parse(flags.launch));
  return Targets{std::move(hosts), std::move(launcher)};
}

}  // namespace pacecar::hosts
