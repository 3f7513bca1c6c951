// A workload of hosts as one of processes: several per host, which share its NIC. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "bench/workload/workload.h"

namespace pacecar {

// A copy of `hosts` for each place in `places`: its flows go between the processes of that place,
// which are number host * per_host + place. All copies start together, and each waits for its own
// flows only. Bytes are those of `hosts` in each copy, or divided among the copies. Ids go on from
// copy to copy.
enum class CopyBytes : uint8_t { kWhole, kDivided };
Workload on_processes(const Workload& hosts, uint32_t per_host, std::span<const uint32_t> places,
                      CopyBytes bytes = CopyBytes::kWhole);

}  // namespace pacecar
