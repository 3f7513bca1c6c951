// The sockets of this process: some that drivers hide, or leave open, must be found. Thread rule:
// any thread.
#pragma once

#include <sys/socket.h>

#include <filesystem>
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

}  // namespace pacecar
