// A FramePort on a network interface: a packet socket (AF_PACKET) that receives all frames of the
// interface, and sends whole frames. Linux, with the capability CAP_NET_RAW.
//
// Checksums that senders left to the device are completed here. Packets that senders joined (GSO)
// are longer than a frame may be, and dropped: senders must cut them ('ip link set DEV gso_max_segs
// 1' on their side).
#pragma once

#include <memory>
#include <string>

#include "bench/switch/frame_port.h"
#include "transport/base/result.h"

namespace pacecar {

// Errors: kNotFound for no such interface, kUnavailable for one that is down, kPermission without
// the capability, kSystem.
Result<std::unique_ptr<FramePort>> open_packet_socket(const std::string& interface);

}  // namespace pacecar
