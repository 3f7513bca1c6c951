// Finds the NIC of a host with the address in the list of hosts.
#pragma once

#include <string>
#include <vector>

#include "bench/hosts/crew.h"
#include "bench/perf/console.h"

namespace pacecar::hosts {

// Adds -d NIC to the flags of each host that has an address in the list, unless the command line
// names the NICs (`unnamed` false). A host without such a NIC is lost, and reported.
void choose_nics(Crew& crew, bool unnamed, std::vector<std::vector<std::string>>& flags,
                 const perf::Console& console);

// The name of the NIC with this address in the output of `pacecar info --json`; else a sentence.
Result<std::string> nic_with_address(const std::string& info, const std::string& address);

}  // namespace pacecar::hosts
