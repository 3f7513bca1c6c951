// A hub for tests of DPDK devices: it forwards each packet from one of its DPDK ports to all
// others. The test polls it, in the same process as the ends. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/io/dpdk/port.h"
#include "transport/io/packet_io.h"

struct rte_ring;

namespace pacecar::test {

// The kind of device that connects an end with the hub.
enum class DpdkLink : uint8_t {
  kRing,    // net_ring: two rings; the end opens the device by its name
  kVirtio,  // net_virtio_user, a virtio NIC; the hub's device is the host's side, net_vhost
};

class DpdkHub {
 public:
  // Throws std::runtime_error. `folder`: for sockets.
  DpdkHub(DpdkLink link, size_t ends, const std::string& folder);
  ~DpdkHub();
  DpdkHub(const DpdkHub&) = delete;
  DpdkHub& operator=(const DpdkHub&) = delete;

  // The name that an end opens.
  const DpdkDevice& device(size_t end) const { return devices_[end]; }
  void turn();
  // True when every port has received a packet: all links are up.
  bool has_received_from_all() const { return std::ranges::all_of(received_, std::identity()); }

 private:
  void make_ring_pair(const std::string& name);

  std::vector<DpdkDevice> devices_;
  std::vector<rte_ring*> rings_;
  std::vector<std::unique_ptr<DpdkPort>> ports_;
  std::vector<bool> received_;
};

// Throws std::runtime_error.
std::unique_ptr<PacketIo> open_end(const DpdkDevice& device);

// Sleeps for a moment and returns the time.
Instant rested_now();

// Waits until the ends, or those at the hub, have received packets from each other. Throws
// std::runtime_error.
void let_links_come_up(const std::function<Instant()>& step,
                       std::span<const std::unique_ptr<PacketIo>> ends,
                       const DpdkHub* hub = nullptr);

}  // namespace pacecar::test
