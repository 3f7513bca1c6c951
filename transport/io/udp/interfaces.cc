#include "transport/io/udp/interfaces.h"

#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <linux/if_addr.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "transport/base/file_descriptor.h"
#include "transport/base/return_if_error.h"
#include "transport/io/sockaddr.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

std::filesystem::path sys_path(const std::string& name) { return "/sys/class/net/" + name; }

Bytes read_mtu(const FileDescriptor& any_socket, const std::string& name) {
  ifreq request{};
  name.copy(request.ifr_name, IF_NAMESIZE - 1);
  return ioctl(any_socket.get(), SIOCGIFMTU, &request) == 0 ? static_cast<Bytes>(request.ifr_mtu)
                                                            : 0;
}

// The path of the interface's PCI device, or of the nearest above it (virtio in a virtual machine).
std::string read_pci_path(const std::string& name) {
  std::error_code error;
  auto device = std::filesystem::canonical(sys_path(name) / "device", error);
  for (; !error && device.has_relative_path(); device = device.parent_path()) {
    const auto bus = std::filesystem::read_symlink(device / "subsystem", error);
    if (!error && bus.filename() == "pci") return device.string();
    error.clear();
  }
  return {};
}

Rate read_speed(const std::string& name) {
  std::ifstream file(sys_path(name) / "speed");
  int64_t megabits = 0;  // -1 where the driver does not know
  if (!(file >> megabits) || megabits <= 0) return Rate();
  return Rate::from_bps(static_cast<uint64_t>(megabits) * 1'000'000);
}

InterfaceInfo describe(const FileDescriptor& any_socket, const ifaddrs& entry) {
  InterfaceInfo info;
  info.name = name_of_label(entry.ifa_name);
  info.mtu = read_mtu(any_socket, info.name);
  info.up = (entry.ifa_flags & IFF_UP) != 0;
  info.running = (entry.ifa_flags & IFF_RUNNING) != 0;
  info.loopback = (entry.ifa_flags & IFF_LOOPBACK) != 0;
  info.bridge = std::filesystem::exists(sys_path(info.name) / "bridge");
  info.pci_path = read_pci_path(info.name);
  // Virtual devices report a made-up speed (veth: 10 Gb/s).
  if (!info.pci_path.empty()) info.speed = read_speed(info.name);
  return info;
}

void add_address(InterfaceInfo& info, const sockaddr& raw) {
  if (raw.sa_family == AF_INET || raw.sa_family == AF_INET6) {
    SocketAddress address;
    std::memcpy(&address, &raw, raw.sa_family == AF_INET ? sizeof address.v4 : sizeof address.v6);
    info.addresses.push_back(from_sockaddr(address));
  } else if (raw.sa_family == AF_PACKET) {
    sockaddr_ll link;
    std::memcpy(&link, &raw, sizeof(link));
    std::array<uint8_t, 6> mac;
    std::copy_n(link.sll_addr, mac.size(), mac.begin());
    if (link.sll_halen == mac.size()) info.guid = guid_from_mac(mac);
  }
}

// IPv6 addresses with any of these flags, in hexadecimal.
std::vector<std::string> addresses_with(unsigned wanted) {
  std::vector<std::string> found;
  std::ifstream file("/proc/net/if_inet6");
  std::string address, index, prefix, scope, flags, name;
  while (file >> address >> index >> prefix >> scope >> flags >> name) {
    if ((std::stoul(flags, nullptr, 16) & wanted) != 0) found.push_back(address);
  }
  return found;
}

}  // namespace

uint64_t guid_from_mac(const std::array<uint8_t, 6>& mac) {
  const uint8_t eui[8] = {
      static_cast<uint8_t>(mac[0] ^ 2), mac[1], mac[2], 0xFF, 0xFE, mac[3], mac[4], mac[5]};
  uint64_t guid = 0;
  for (const uint8_t byte : eui) guid = guid << 8 | byte;
  return guid;
}

Result<std::vector<InterfaceInfo>> list_interfaces() {
  ifaddrs* list = nullptr;
  const FileDescriptor any_socket(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (any_socket.get() < 0 || getifaddrs(&list) != 0) {
    return fail(
        ErrorCode::kSystem,
        fmt::format("cannot list the network interfaces ({}): raise the limit of open files "
                    "with 'ulimit -n'",
                    std::strerror(errno)));
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::vector<InterfaceInfo> interfaces;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    auto it = std::ranges::find(interfaces, name_of_label(entry->ifa_name), &InterfaceInfo::name);
    if (it == interfaces.end()) it = interfaces.insert(it, describe(any_socket, *entry));
    if (entry->ifa_addr != nullptr) add_address(*it, *entry->ifa_addr);
  }
  // Temporary (RFC 8981) and deprecated ones vanish; one that failed DAD belongs to another host.
  const auto passing = addresses_with(IFA_F_TEMPORARY | IFA_F_DEPRECATED | IFA_F_TENTATIVE);
  const auto refused = addresses_with(IFA_F_DADFAILED);
  const auto is_in = [](const auto& found, const Address& address) {
    return std::ranges::count(found, fmt::format("{:02x}", fmt::join(address.ip, ""))) > 0;
  };
  for (InterfaceInfo& interface : interfaces) {
    std::erase_if(interface.addresses,
                  [&](const Address& address) { return is_in(refused, address); });
    std::ranges::stable_partition(interface.addresses,
                                  [&](const Address& address) { return !is_in(passing, address); });
  }
  return interfaces;
}

Result<InterfaceInfo> find_interface(const std::string& name) {
  ASSIGN_OR_RETURN(auto interfaces, list_interfaces());
  std::vector<std::string> names;
  for (InterfaceInfo& info : interfaces) {
    if (info.name == name) return std::move(info);
    names.push_back(std::move(info.name));
  }
  return fail(ErrorCode::kNotFound,
              fmt::format("there is no network interface '{}': choose one of {}", name,
                          fmt::join(names, ", ")));
}

std::optional<Address> preferred_address(const InterfaceInfo& interface) {
  std::optional<Address> best;
  for (const Address& address : interface.addresses) {
    if (!is_ipv4(address)) continue;
    if (!best || (is_loopback(*best) && !is_loopback(address))) best = address;
  }
  return best ? best : preferred_ipv6_address(interface);
}

std::optional<Address> preferred_ipv6_address(const InterfaceInfo& interface) {
  std::optional<Address> best;
  for (const Address& address : interface.addresses) {
    if (is_ipv4(address)) continue;
    if (!best || (is_link_local(*best) && !is_link_local(address))) best = address;
  }
  return best;
}

}  // namespace pacecar
