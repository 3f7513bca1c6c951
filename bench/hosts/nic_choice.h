// Which NIC of a host is the one with the address that the list of hosts names.
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

// Of what `pacecar info --json` printed, the name of the NIC with this address; else a sentence.
Result<std::string> nic_with_address(const std::string& info, const std::string& address);

}  // namespace pacecar::hosts
