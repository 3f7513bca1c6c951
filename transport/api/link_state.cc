#include "transport/api/link_state.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>

#include "transport/base/file_descriptor.h"

namespace pacecar {

std::optional<bool> link_is_up(const std::string& interface) {
  ifreq request{};
  if (interface.size() >= sizeof request.ifr_name) return std::nullopt;
  std::copy(interface.begin(), interface.end(), request.ifr_name);
  const FileDescriptor any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (any.get() < 0 || ioctl(any.get(), SIOCGIFFLAGS, &request) != 0) return std::nullopt;
  return (request.ifr_flags & IFF_RUNNING) != 0;
}

}  // namespace pacecar
