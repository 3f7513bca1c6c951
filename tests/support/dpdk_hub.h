// A hub for tests: what comes in at one of its DPDK ports goes out at all others. It is turned by
// the test, in the same process as the ends.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/io/dpdk/port.h"

struct rte_ring;

namespace pacecar::test {

// Which kind of device joins an end and the hub.
enum class DpdkLink : uint8_t {
  kRing,   // net_ring: two rings, made here; the end opens the device by its name
  kMemif,  // net_memif: the hub's device is the server
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

 private:
  void make_ring_pair(const std::string& name);

  std::vector<DpdkDevice> devices_;
  std::vector<rte_ring*> rings_;
  std::vector<std::unique_ptr<DpdkPort>> ports_;
};

}  // namespace pacecar::test
