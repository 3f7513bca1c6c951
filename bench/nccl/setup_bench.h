// How fast a plugin makes connections, and whether it gives back what they took.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "net_plugin/host/host.h"

namespace pacecar::nccl {

// Opens `connections` of this process to itself, each with a listener of its own as NCCL has it,
// passes a message over each and closes them; `rounds` times. Throws std::runtime_error.
// Descriptors and resident memory are compared from the end of the first round to that of the last.
nlohmann::json measure_setup(const Host& host, size_t connections, size_t rounds);

}  // namespace pacecar::nccl
