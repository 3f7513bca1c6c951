// What only the running kernel tells about interfaces: PFC over netlink, the driver's statistics
// over ethtool's ioctl, how many have addresses. None needs no privilege. Any thread; each call is
// on its own.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "deploy/preflight/read_facts.h"

namespace pacecar::preflight {

KernelProbes kernel_probes();

// PFC in the answer to a DCB_CMD_IEEE_GET; nullopt when the driver has none or the bytes are not
// such an answer.
std::optional<PriorityFlowControl> parse_pfc(std::span<const std::byte> answer);

}  // namespace pacecar::preflight
