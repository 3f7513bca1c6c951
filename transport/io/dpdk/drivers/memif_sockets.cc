#include "transport/io/dpdk/drivers/memif_sockets.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "transport/base/file_descriptor.h"
#include "transport/io/dpdk/drivers/driver.h"
#include "transport/io/dpdk/drivers/own_sockets.h"

namespace pacecar {
namespace {

constexpr std::string_view kMemifSocket = "/run/memif.sock";  // the driver's default
constexpr int kGreetingMs = 1000;  // a client must not leave before it is greeted

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

// Sockets of the driver's kind whose own or whose peer's name (`get_name`) is `socket`.
std::vector<int> find_sockets(GetName get_name, std::string_view socket) {
  std::vector<int> found = own_sockets(AF_UNIX);
  std::erase_if(found, [&](int fd) {
    return socket_option(fd, SO_TYPE) != SOCK_SEQPACKET || !is_named(fd, get_name, socket);
  });
  return found;
}

bool is_server(const DpdkDevice& device) {
  return device.driver() == kMemifDriver && device.argument("role") == "server";
}

bool serves_at_file(const DpdkDevice& device) {
  return is_server(device) && device.argument("socket-abstract") == "no";
}

}  // namespace

std::string memif_socket(const DpdkDevice& device) {
  return device.driver() == kMemifDriver
             ? std::string(device.argument("socket").value_or(kMemifSocket))
             : "";
}

bool is_memif_client(const DpdkDevice& device) {
  return device.driver() == kMemifDriver && !is_server(device);
}

void remove_dead_memif_socket(const DpdkDevice& device) {
  if (!serves_at_file(device)) return;
  const std::string path = memif_socket(device);
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

void protect_memif_socket(const DpdkDevice& device, const LogSink& log) {
  if (serves_at_file(device)) {
    chmod(memif_socket(device).c_str(), S_IRUSR | S_IWUSR);
  } else if (is_server(device)) {
    log(LogLevel::kWarn,
        fmt::format("the DPDK device '{}': every user of this host may connect to its socket, and "
                    "so end this process (DPDK 22.11): add socket-abstract=no at both ends, and "
                    "name a socket in a directory of your own",
                    device.name));
  }
}

bool memif_client_is_connected(std::string_view socket) {
  return !find_sockets(getpeername, socket).empty();
}

void retire_memif_listener(std::string_view socket) {
  for (const int fd : find_sockets(getsockname, socket)) {
    if (socket_option(fd, SO_ACCEPTCONN) == 1) {
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

}  // namespace pacecar
