// PacketIo over UDP sockets of the Linux kernel: needs no privilege and no special NIC.
// One socket receives; one socket per path (a UDP source port each) and one for control words send.
// Bursts leave and arrive as joined datagrams (UDP_SEGMENT, UDP_GRO). No allocation after opening.
// Joined datagrams may wait inside: sleep on wait_fd() only after receive() has returned 0.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "transport/base/result.h"
#include "transport/io/packet_io.h"

namespace pacecar {

struct UdpConfig {
  std::string interface;  // "eth0"
  // One of its addresses, with port 0; else IPv4 is preferred, then global IPv6, then link-local.
  std::optional<Address> address = std::nullopt;
  uint16_t port = 0;               // to receive on; 0: the kernel chooses
  uint32_t paths = 8;              // 1 .. kMaxUdpPaths
  Bytes socket_buffer = 16 << 20;  // receive buffer asked of the kernel
  Bytes send_buffer = 1 << 20;     // of each path; when full, send() takes no more
  // The IP header's DSCP, in the upper six bits; ECN is set here: data is capable, control is not.
  uint8_t data_tc = 0;
  uint8_t control_tc = 0;
  // The common first bits of all valid datagrams (drop_unless); none: no filter.
  uint64_t beginning_bits = 0;
  uint64_t beginning = 0;
  bool without_checksum = false;  // IPv6 datagrams without UDP checksum are received, too
  // PacketIoCaps::identifies_datagrams: only RoCE v2 is sent.
  bool identifies = false;
  Bytes datagram_limit = 65000;   // for a network whose MTU is smaller than the interface's
};

inline constexpr uint32_t kMaxUdpPaths = 256;

Result<std::unique_ptr<PacketIo>> open_udp(const UdpConfig& config);

}  // namespace pacecar
