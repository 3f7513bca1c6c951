// Steering: a device that is shared with the kernel (a bifurcated driver, such as mlx5) brings us
// the packets of one address and UDP port, and leaves all others to the kernel. Thread rule: as
// DpdkPort.
#pragma once

#include <cstdint>
#include <string>

#include "transport/wire/packet.h"

namespace pacecar {

// When its queues are set up (net_tap) and before it starts (mlx5): from now on it brings nothing
// that no rule asks for. Otherwise why not.
tl::expected<void, std::string> isolate_device(uint16_t port_id);

// Once it runs. Datagrams come to the only queue: there is nothing to spread them over (RSS).
tl::expected<void, std::string> steer_datagrams(uint16_t port_id, const Address& to);

}  // namespace pacecar
