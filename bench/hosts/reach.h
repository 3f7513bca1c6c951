// Starts agents on the hosts of --hosts, and runs a command on each.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/hosts/crew.h"
#include "bench/hosts/host_list.h"
#include "bench/hosts/launcher.h"
#include "bench/perf/console.h"
#include "bench/perf/hosts_flags.h"
#include "transport/base/result.h"

namespace pacecar::hosts {

// The hosts of a command line, and how to reach them.
struct Targets {
  std::vector<Host> hosts;
  Launcher launcher;
};

// Errors: those of read_hosts() and Launcher::parse().
Result<Targets> targets_of(const perf::HostsFlags& flags);

// Starts the agents and waits for them. Reports lost hosts, hosts with another release, and names
// of the same machine. Errors: kPeer (no host has answered), kUnavailable (Ctrl-C).
Result<std::unique_ptr<Crew>> reach(const Targets& targets, const perf::HostsFlags& flags,
                                    const perf::Console& console);

// Runs a command on all hosts that are ready, with the arguments that `arguments_of` returns for a
// host (empty: none). Returns how each ended; nullopt for a host that was lost, or took longer than
// `limit`, which is reported.
std::vector<std::optional<Event>> run_on_all(
    Crew& crew, const std::function<std::vector<std::string>(size_t host)>& arguments_of,
    Duration limit, const perf::Console& console);

// The last error that a run has printed, without its label; if there is none, how it ended.
std::string why_failed(const Event& ended);

// "3 hosts", "1 host".
std::string count_of(size_t count, const std::string& what);

}  // namespace pacecar::hosts
