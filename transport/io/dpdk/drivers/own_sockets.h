// The sockets of this process: some that drivers hide, or leave open, must be found. net_af_xdp of
// DPDK 22.11 does not close the socket of a closed device's buffers, which occupies the interface's
// queue; so the port closes it. Thread rule: any thread.
#pragma once

#include <sys/socket.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <vector>

#include "transport/base/to_number.h"

namespace pacecar {

// An option of level SOL_SOCKET; -1: none, or no socket.
inline int socket_option(int fd, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  return getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

// Descriptors of sockets of this domain.
inline std::vector<int> own_sockets(int domain) {
  std::vector<int> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const int fd = to_number<int>(entry.path().filename().native()).value_or(-1);
    if (socket_option(fd, SO_DOMAIN) == domain) found.push_back(fd);
  }
  return found;
}

// The AF_XDP sockets: descriptors by inode, which is not reused.
inline std::map<ino_t, int> xdp_sockets() {
  std::map<ino_t, int> found;
  for (const int fd : own_sockets(AF_XDP)) {
    struct stat status {};
    if (fstat(fd, &status) == 0) found[status.st_ino] = fd;
  }
  return found;
}

}  // namespace pacecar
