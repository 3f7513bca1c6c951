// Facts that no file has: PFC over netlink, the driver's statistics over ethtool's ioctl, the
// number of interfaces with addresses, and the packets that reach a peer. No privilege is needed.
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "bench/preflight/facts.h"

namespace pacecar::preflight {

// The priorities with PFC, a bit each; nullopt: not known.
std::optional<uint8_t> ask_pfc(const std::string& netdev);
// The driver's statistics; empty: not known.
Counters ask_statistics(const std::string& netdev);
// How many interfaces are up with an IP address.
size_t count_interfaces();

// The largest packets that reach a peer and come back, by `ping`, which must not fragment them.
// Blocks for seconds. (peer_path.cc)
PeerPath probe_peer(const std::string& host);

// PFC in the answer to a DCB_CMD_IEEE_GET; nullopt if the driver has none or the bytes are not such
// an answer.
std::optional<uint8_t> parse_pfc(std::span<const std::byte> answer);

}  // namespace pacecar::preflight
