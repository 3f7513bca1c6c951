// A FramePort on a network interface: a packet socket (AF_PACKET) that sees all frames the
// interface receives and sends whole ones. Linux, with the capability CAP_NET_RAW.
//
// Senders may leave checksums to the device: they are completed here. What they have joined (GSO)
// is longer than a frame may be, and dropped: it must be cut before it comes ('ip link set DEV
// gso_max_segs 1' on the sender's side).
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
