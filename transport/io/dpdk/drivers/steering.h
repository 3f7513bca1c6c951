// Steering: a device that is shared with the kernel (a bifurcated driver, such as mlx5) gives us
// the packets of one address and UDP port, and leaves all others to the kernel. Errors: the
// driver's reason. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <tl/expected.hpp>

#include "transport/wire/packet.h"

namespace pacecar {

// From now on the device receives only packets that a rule selects. Call it when the queues are set
// up (net_tap needs that) and before the start (mlx5 needs that).
tl::expected<void, std::string> isolate_device(uint16_t port_id);
// After the start. Datagrams go to the only queue, without RSS. The rule ends with the device.
tl::expected<void, std::string> steer_datagrams(uint16_t port_id, const Address& to);

}  // namespace pacecar
