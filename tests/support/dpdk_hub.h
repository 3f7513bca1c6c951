// A hub for tests: what comes in at one of its DPDK ports goes out at all others. It is turned by
// the test, in the same process as the ends. And what else tests of DPDK devices share.
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

// Which kind of device joins an end and the hub.
enum class DpdkLink : uint8_t {
  kRing,    // net_ring: two rings, made here; the end opens the device by its name
  kMemif,   // net_memif: the hub's device is the server
  kVirtio,  // net_virtio_user, a virtio NIC; the hub's device is the host's side, net_vhost
};

class DpdkHub {
 public:
  // Throws std::runtime_error. `folder`: for sockets.
  DpdkHub(DpdkLink link, size_t ends, const std::string& folder);
  ~DpdkHub();
  DpdkHub(const DpdkHub&) = delete;
  DpdkHub& operator=(const DpdkHub&) = delete;

  // What an end has to open.
  const DpdkDevice& device(size_t end) const { return devices_[end]; }
  void turn();
  // So the links to all of them are up.
  bool has_heard_all() const { return std::ranges::all_of(heard_, std::identity()); }

 private:
  void make_ring_pair(const std::string& name);

  std::vector<DpdkDevice> devices_;
  std::vector<rte_ring*> rings_;
  std::vector<std::unique_ptr<DpdkPort>> ports_;
  std::vector<bool> heard_;
};

// Throws std::runtime_error.
std::unique_ptr<PacketIo> open_end(const DpdkDevice& device);

// The time after a moment in which others may run.
Instant rested_now();

// Until the ends, if there is a hub those at it, have heard of each other. Throws
// std::runtime_error.
void let_links_come_up(const std::function<Instant()>& step,
                       std::span<const std::unique_ptr<PacketIo>> ends,
                       const DpdkHub* hub = nullptr);

}  // namespace pacecar::test
