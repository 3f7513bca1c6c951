// PacketIo over a DPDK Ethernet device, which it polls: it has no descriptor to sleep on. Makes and
// reads Ethernet, IP and UDP headers itself, and sends and answers ARP and neighbour discovery. No
// allocation after opening. Thread rule: as PacketIo. A packet to a peer whose MAC address is not
// known is lost, and the peer is asked for the address. This is rare, as both ends announce
// themselves when their link comes up. While the link is down, all packets are lost.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "transport/base/log.h"
#include "transport/base/result.h"
#include "transport/io/dpdk/device.h"
#include "transport/io/frame.h"
#include "transport/io/packet_io.h"

namespace pacecar {

struct DpdkConfig {
  DpdkDevice device;
  std::string eal_arguments;  // empty: our own choice
  uint32_t paths = 8;         // UDP source ports of data; at least 1
  // As of ip_traffic_class().
  uint8_t data_tc = 0;
  uint8_t control_tc = 0;
  // Let the device, if it can, make and check UDP checksums, to protect payloads; else they are 0.
  bool udp_checksums = true;
  // UDP port 4791 also where the kernel has the address and could choose another.
  bool standard_port = false;
};

struct OpenedDpdk {
  std::unique_ptr<PacketIo> io;
  MacAddress mac{};
  std::string interface;  // the kernel's interface of the same device; empty: none
};

// The address is the device's argument, else that of the kernel's interface on the same device,
// else a link-local one made of the MAC.
Result<OpenedDpdk> open_dpdk(const DpdkConfig& config, const LogSink& log);

}  // namespace pacecar
