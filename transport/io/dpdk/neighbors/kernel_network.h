// KernelNetwork: what the kernel knows of the network on one of its interfaces, asked over
// rtnetlink: the next hop to an address, and MAC addresses, for devices whose ARP and neighbour
// discovery the kernel receives. No call blocks. Thread rule: one thread at a time.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>

#include "transport/io/frame.h"
#include "transport/io/udp/udp_socket.h"

namespace pacecar {

class KernelNetwork {
 public:
  explicit KernelNetwork(const std::string& interface);

  // The gateway of the kernel's route to the address; without one, or without a route, the address
  // itself.
  Address next_hop(const Address& address);
  // nullopt if the kernel does not know the MAC address yet; then makes the kernel ask for it.
  std::optional<MacAddress> find_mac(const Address& address);

 private:
  template <typename Request>
  std::span<const uint8_t> ask(Request request, const Address& address);

  int interface_;  // its index
  UdpSocket netlink_;
  uint32_t sequence_ = 0;  // of the newest request
  alignas(8) std::array<uint8_t, 1024> answer_;
};

}  // namespace pacecar
