// Reads the facts about a host from its files and the running kernel. Never fails: what cannot be
// read is unknown. Everything is sorted by name.
#pragma once

#include <string_view>
#include <vector>

#include "bench/preflight/facts.h"
#include "bench/preflight/host_tree.h"

namespace pacecar::preflight {

// `live`: the tree is of this host, so that facts without a file are read from the running kernel.
Facts read_facts(const HostTree& tree, bool live);

// Sets `growth` in `after` to the growth of the loss counters since `before`.
void set_growth(const Facts& before, Duration watched, Facts& after);

// Parts of read_facts(), each from its own files.
std::vector<RdmaDevice> read_rdma(const HostTree& tree);
std::vector<Netdev> read_netdevs(const HostTree& tree, bool live);
void read_pci(const HostTree& tree, Facts& facts);
Process read_process(const HostTree& tree);
Cpu read_cpu(const HostTree& tree);
Software read_software(const HostTree& tree);

// Whether a bridge redirects requests or completions between peers upstream. `config`: its
// configuration space as the kernel's file has it, 4096 bytes, or only 64 if we are not root.
AcsState acs_state(std::string_view config);

}  // namespace pacecar::preflight
