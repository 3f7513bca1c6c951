// PacketIo over UDP sockets of the Linux kernel: needs no privilege and no special NIC.
// One socket receives. One socket per path (each with its UDP source port) and one for control
// writes send. Bursts leave and arrive as joined datagrams (UDP_SEGMENT, UDP_GRO). No allocation
// after opening. Received datagrams may wait here: sleep on wait_fd() only after receive() has
// returned 0. Thread rule: as PacketIo.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "transport/base/port_range.h"
#include "transport/base/result.h"
#include "transport/io/packet_io.h"

namespace pacecar {

// For open_udp() and open_raw().
struct SocketConfig {
  std::string interface;  // "eth0"
  // One of its addresses, with port 0; none: preferred_address().
  std::optional<Address> address = std::nullopt;
  uint16_t port = 0;  // to receive on; 0: one of `ports`
  PortRange ports = {};
  uint32_t paths = 8;              // at least 1
  Bytes socket_buffer = 16 << 20;  // requested size of the receive buffer
  // As of ip_traffic_class().
  uint8_t data_tc = 0;
  uint8_t control_tc = 0;
  // The first bits that all valid datagrams have in common (drop_unless); none: no filter.
  uint64_t beginning_bits = 0;
  uint64_t beginning = 0;
  bool without_checksum = false;  // receive IPv6 datagrams without UDP checksum, too
  bool identifies = false;        // PacketIoCaps::identifies_datagrams: only RoCE v2 is sent.
};

Result<std::unique_ptr<PacketIo>> open_udp(const SocketConfig& config);

}  // namespace pacecar
