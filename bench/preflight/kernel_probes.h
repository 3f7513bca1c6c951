// Facts about interfaces that only the running kernel has: PFC over netlink, the driver's
// statistics over ethtool's ioctl, the number with addresses. No privilege is needed. Any thread;
// no state between calls.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "bench/preflight/read_facts.h"

namespace pacecar::preflight {

KernelProbes kernel_probes();

// PFC in the answer to a DCB_CMD_IEEE_GET; nullopt when the driver has none or the bytes are not
// such an answer.
std::optional<PriorityFlowControl> parse_pfc(std::span<const std::byte> answer);

}  // namespace pacecar::preflight
