// The AF_XDP sockets of this process. net_af_xdp of DPDK 22.11 does not close the socket of a
// closed device's buffers, which occupies the interface's queue; so the port finds and closes it.
// Thread rule: any thread.
#pragma once

#include <sys/socket.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>

#include "transport/base/to_number.h"

namespace pacecar {

// Descriptors by inode, which is not reused.
inline std::map<ino_t, int> xdp_sockets() {
  std::map<ino_t, int> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const int fd = to_number<int>(entry.path().filename().native()).value_or(-1);
    int domain = -1;
    socklen_t size = sizeof domain;
    struct stat status {};
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_XDP &&
        fstat(fd, &status) == 0) {
      found[status.st_ino] = fd;
    }
  }
  return found;
}

}  // namespace pacecar
