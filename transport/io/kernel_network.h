// KernelNetwork: what the kernel knows of the network, asked over rtnetlink: by which interface it
// sends, the next hop to an address, and MAC addresses, for devices whose ARP and neighbour
// discovery the kernel receives. No call blocks. Thread rule: one thread at a time.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <span>

#include "transport/base/file_descriptor.h"
#include "transport/io/frame.h"

namespace pacecar {

class KernelNetwork {
 public:
  // next_hop() and find_mac() are about the interface of this index.
  explicit KernelNetwork(uint32_t interface = 0);

  // The index of the interface by which the kernel sends from an address to another; 0: no route.
  uint32_t outgoing(const Address& from, const Address& to);
  // The gateway of the kernel's route to the address; without gateway or route: the address itself.
  Address next_hop(const Address& address);
  // nullopt if the kernel does not know the MAC address yet; then makes the kernel ask for it.
  std::optional<MacAddress> find_mac(const Address& address);

 private:
  struct Attribute {
    unsigned short type;  // as rtattr has it
    std::span<const uint8_t> value;
  };
  template <typename Body>
  std::span<const uint8_t> ask(uint16_t type, const Body& body,
                               std::initializer_list<Attribute> attributes);

  int interface_;  // its index
  FileDescriptor netlink_;
  uint32_t sequence_ = 0;  // of the newest request
  alignas(8) std::array<uint8_t, 1024> answer_;
};

}  // namespace pacecar
