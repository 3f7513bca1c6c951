// Work that the AF_XDP driver of DPDK 22.11 leaves to its callers. Thread rule: any thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace pacecar {

// The driver keeps the socket of a closed device's buffers open, and with it the interface's queue:
// this closes it. Sockets are identified by their inodes, which are not reused.
class XdpSockets {
 public:
  // The process's present sockets belong to others.
  XdpSockets() : others_(inodes()) {}
  // Newer sockets are ours.
  void remember();
  void close_ours() const;

 private:
  static std::vector<ino_t> inodes();

  std::vector<ino_t> others_;
  std::vector<ino_t> ours_;
};

// Why a device on this interface probably did not open, and what to do.
std::string af_xdp_cure(const std::string& interface);

}  // namespace pacecar
