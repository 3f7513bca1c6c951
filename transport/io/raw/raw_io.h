// PacketIo over raw IPv4 sockets of the Linux kernel, for RoCE v2, whose ICRC covers the IPv4
// header. Receives on UDP port 4791 of one address. Needs the capability CAP_NET_RAW. No allocation
// after opening. Thread rule: as PacketIo.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "transport/base/result.h"
#include "transport/io/packet_io.h"

namespace pacecar {

struct RawConfig {
  std::string interface;                          // "eth0"
  std::optional<Address> address = std::nullopt;  // else the first IPv4 address of the interface
  uint32_t paths = 8;                             // UDP source ports of data; at least 1
  Bytes socket_buffer = 16 << 20;                 // requested size of the receive buffer
  // As of ip_traffic_class().
  uint8_t data_tc = 0;
  uint8_t control_tc = 0;
};

// Errors: kPermission without the capability; kNotFound without an IPv4 address; kSystem when UDP
// port 4791 of the address is taken.
Result<std::unique_ptr<PacketIo>> open_raw(const RawConfig& config);

}  // namespace pacecar
