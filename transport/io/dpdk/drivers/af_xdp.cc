#include "transport/io/dpdk/drivers/af_xdp.h"

#include <fmt/format.h>
#include <linux/bpf.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>

#include "transport/base/file_descriptor.h"
#include "transport/io/dpdk/drivers/driver.h"
#include "transport/io/dpdk/drivers/own_sockets.h"
#include "transport/io/udp/interfaces.h"

namespace pacecar {
namespace {

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
