#include "transport/io/dpdk/driver_sockets.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/bpf.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "transport/base/file_descriptor.h"
#include "transport/base/to_number.h"
#include "transport/io/dpdk/device_name.h"
#include "transport/io/udp/interfaces.h"

namespace pacecar {
namespace {

constexpr int kGreetingMs = 1000;  // a client must not leave before it is greeted

int option(int fd, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  return getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

using GetName = int (*)(int, sockaddr*, socklen_t*);

// Compares names without the zero byte that begins an abstract name, and without the zeros at the
// end of the driver's names.
bool is_named(int fd, GetName get_name, std::string_view socket) {
  sockaddr_un address{};
  socklen_t size = sizeof address;
  if (get_name(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return false;
  const size_t begin = address.sun_path[0] == '\0' ? 1 : 0;
  const char* const name = address.sun_path + begin;
  return std::string_view(name, strnlen(name, sizeof address.sun_path - begin)) == socket;
}

// Descriptors of this process's sockets.
std::vector<int> own_sockets(int domain) {
  std::vector<int> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const int fd = to_number<int>(entry.path().filename().native()).value_or(-1);
    if (option(fd, SO_DOMAIN) == domain) found.push_back(fd);
  }
  return found;
}

// Descriptors of sockets of net_memif's kind whose own or whose peer's name (`get_name`) is
// `socket`.
std::vector<int> memif_sockets(GetName get_name, std::string_view socket) {
  std::vector<int> found = own_sockets(AF_UNIX);
  std::erase_if(found, [&](int fd) {
    return option(fd, SO_TYPE) != SOCK_SEQPACKET || !is_named(fd, get_name, socket);
  });
  return found;
}

bool may_load_programs() {
  bpf_attr attributes{};
  attributes.map_type = BPF_MAP_TYPE_XSKMAP;
  attributes.key_size = attributes.value_size = sizeof(uint32_t);
  attributes.max_entries = 1;
  const FileDescriptor map(
      static_cast<int>(syscall(SYS_bpf, BPF_MAP_CREATE, &attributes, sizeof attributes)));
  return map || errno != EPERM;
}

}  // namespace

void remove_dead_memif_socket(const std::string& path) {
  std::error_code error;
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if (path.size() >= sizeof address.sun_path || !std::filesystem::is_socket(path, error)) return;
  path.copy(address.sun_path, path.size());
  const FileDescriptor probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!probe) return;
  if (connect(probe.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    pollfd greeting{.fd = probe.get(), .events = POLLIN, .revents = 0};
    poll(&greeting, 1, kGreetingMs);
  } else if (errno == ECONNREFUSED) {
    std::filesystem::remove(path, error);
  }
}

void keep_memif_socket_private(const std::string& path) { chmod(path.c_str(), S_IRUSR | S_IWUSR); }

bool memif_client_is_connected(std::string_view socket) {
  return !memif_sockets(getpeername, socket).empty();
}

void retire_memif_listener(std::string_view socket) {
  for (const int fd : memif_sockets(getsockname, socket)) {
    if (option(fd, SO_ACCEPTCONN) == 1) {
      // The interrupt thread needs a descriptor on which it can wait.
      const FileDescriptor silent(eventfd(0, EFD_CLOEXEC));
      if (silent) dup3(silent.get(), fd, O_CLOEXEC);
    } else {
      // A client that has not named its device yet: the driver must find the connection closed, and
      // empty.
      shutdown(fd, SHUT_RDWR);
      char byte = 0;
      while (recv(fd, &byte, sizeof byte, MSG_DONTWAIT) > 0) {
      }
    }
  }
}

std::map<ino_t, int> xdp_sockets() {
  std::map<ino_t, int> found;
  for (const int fd : own_sockets(AF_XDP)) {
    struct stat status {};
    if (fstat(fd, &status) == 0) found[status.st_ino] = fd;
  }
  return found;
}

std::string af_xdp_cure(const std::string& interface) {
  const FileDescriptor xdp(socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (!xdp && errno == EAFNOSUPPORT) {
    return "this kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS): use net_af_packet";
  }
  if (!xdp || !may_load_programs()) {
    rlimit locked{};
    getrlimit(RLIMIT_MEMLOCK, &locked);
    return fmt::format(
        "AF_XDP is for root, or CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_IPC_LOCK (without the "
        "last {} KiB of memory may be locked)",
        locked.rlim_cur / 1024);
  }
  const auto found = find_interface(interface);
  const Bytes most = dpdk_driver(kAfXdpDriver).most_mtu;
  if (found && found->mtu > most) {
    return fmt::format(
        "its MTU is {}, of which few drivers take more than {} with XDP: 'ip link "
        "set {} mtu {}'",
        found->mtu, most, interface, most);
  }
  return fmt::format(
      "another program may have the interface's queue or an XDP program on it, which 'ip link show "
      "{}' shows: end it, or use net_af_packet",
      interface);
}

}  // namespace pacecar
