#include "bench/hosts/targets.h"

namespace pacecar::hosts {

Result<Targets> targets_of(const perf::HostsFlags& flags) {
  auto hosts = read_hosts(flags.hosts);
  if (!hosts) return tl::unexpected(hosts.error());
  auto launcher = Launcher::parse(flags.launch);
  if (!launcher) return tl::unexpected(launcher.error());
  return Targets{std::move(*hosts), std::move(*launcher)};
}

}  // namespace pacecar::hosts
