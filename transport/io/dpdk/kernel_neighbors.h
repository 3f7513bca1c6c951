// KernelNeighbors: looks up MAC addresses in the kernel's neighbour table, for devices whose ARP
// and neighbour discovery the kernel receives. Thread rule: one thread at a time.
#pragma once

#include <optional>
#include <string>

#include "transport/io/frame.h"
#include "transport/io/udp/udp_socket.h"

namespace pacecar {

class KernelNeighbors {
 public:
  explicit KernelNeighbors(const std::string& interface);

  // nullopt if the kernel does not know the address yet; then makes the kernel ask for it.
  std::optional<MacAddress> find(const Address& address);

 private:
  std::optional<MacAddress> look_up(const Address& address);

  int interface_;  // its index
  UdpSocket netlink_;
  uint32_t sequence_ = 0;  // of the newest request
};

}  // namespace pacecar
