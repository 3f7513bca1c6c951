// Steering: a device that is shared with the kernel (a bifurcated driver, such as mlx5) gives us
// the packets of one address and UDP port, and leaves all others to the kernel. Thread rule: as
// DpdkPort.
#pragma once

#include <cstdint>
#include <string>

#include "transport/wire/packet.h"

namespace pacecar {

// When its queues are set up (net_tap) and before it starts (mlx5): from now on it receives only
// what a rule selects. Errors: the reason.
tl::expected<void, std::string> isolate_device(uint16_t port_id);

// After the start. Datagrams go to the only queue, without RSS.
tl::expected<void, std::string> steer_datagrams(uint16_t port_id, const Address& to);

}  // namespace pacecar
