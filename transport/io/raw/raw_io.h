// PacketIo over raw IPv4 sockets of the Linux kernel, for protocols whose checksum covers the IPv4
// header: RoCE v2. Receives on UDP port 4791 of one address; needs the capability CAP_NET_RAW. No
// allocation after opening.
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
  uint32_t paths = 8;                             // UDP source ports of data; 1 .. kMaxRawPaths
  Bytes socket_buffer = 16 << 20;                 // receive buffer asked of the kernel
  Bytes send_buffer = 1 << 20;                    // when full, send() takes no more
  // The IP header's DSCP, in the upper six bits; ECN is set here: data is capable, control is not.
  uint8_t data_tc = 0;
  uint8_t control_tc = 0;
};

inline constexpr uint32_t kMaxRawPaths = 256;

// Errors: kPermission without the capability; kNotFound without an IPv4 address; kSystem when UDP
// port 4791 of the address is taken.
Result<std::unique_ptr<PacketIo>> open_raw(const RawConfig& config);

}  // namespace pacecar
