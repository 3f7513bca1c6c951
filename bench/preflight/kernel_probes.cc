#include "bench/preflight/kernel_probes.h"

#include <ifaddrs.h>
#include <linux/dcbnl.h>
#include <linux/ethtool.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <vector>

#include "transport/base/file_descriptor.h"

namespace pacecar::preflight {
namespace {

FileDescriptor make_socket(int family, int type, int protocol) {
  return FileDescriptor(socket(family, type | SOCK_CLOEXEC, protocol));
}

// --- PFC: linux/dcbnl.h, IEEE 802.1Qaz ---

struct DcbRequest {
  nlmsghdr header;
  dcbmsg dcb;
  nlattr name_header;
  std::array<char, IFNAMSIZ> name;
};

DcbRequest dcb_request(const std::string& netdev) {
  DcbRequest request{.header = {.nlmsg_len = sizeof(DcbRequest),
                                .nlmsg_type = RTM_GETDCB,
                                .nlmsg_flags = NLM_F_REQUEST},
                     .dcb = {.dcb_family = AF_UNSPEC, .cmd = DCB_CMD_IEEE_GET},
                     .name_header = {.nla_len = NLA_HDRLEN + IFNAMSIZ, .nla_type = DCB_ATTR_IFNAME},
                     .name = {}};
  netdev.copy(request.name.data(), IFNAMSIZ - 1);
  return request;
}

// The payload of the first attribute of `type`; empty when there is none.
std::span<const std::byte> attribute(std::span<const std::byte> attributes, uint16_t type) {
  while (attributes.size() >= NLA_HDRLEN) {
    nlattr header;
    std::memcpy(&header, attributes.data(), sizeof(header));
    if (header.nla_len < NLA_HDRLEN || header.nla_len > attributes.size()) return {};
    if ((header.nla_type & NLA_TYPE_MASK) == type) {
      return attributes.subspan(NLA_HDRLEN, header.nla_len - NLA_HDRLEN);
    }
    attributes = attributes.subspan(std::min<size_t>(NLA_ALIGN(header.nla_len), attributes.size()));
  }
  return {};
}

// --- statistics: linux/ethtool.h ---

constexpr uint32_t kMaxStatistics = 16384;

bool ethtool(const FileDescriptor& socket, const std::string& netdev, void* command) {
  ifreq request{};
  netdev.copy(request.ifr_name, IFNAMSIZ - 1);
  request.ifr_data = static_cast<char*>(command);
  return ioctl(socket.get(), SIOCETHTOOL, &request) == 0;
}

uint32_t count_statistics(const FileDescriptor& socket, const std::string& netdev) {
  const ethtool_sset_info info{.cmd = ETHTOOL_GSSET_INFO, .sset_mask = 1ULL << ETH_SS_STATS};
  std::array<uint64_t, sizeof(info) / sizeof(uint64_t) + 1> query{};  // with room for one count
  std::memcpy(query.data(), &info, sizeof(info));
  if (!ethtool(socket, netdev, query.data())) return 0;
  uint32_t count = 0;
  std::memcpy(&count, reinterpret_cast<const std::byte*>(query.data()) + sizeof(info),
              sizeof(count));
  return count <= kMaxStatistics ? count : 0;
}

}  // namespace

std::optional<uint8_t> parse_pfc(std::span<const std::byte> answer) {
  nlmsghdr header;
  constexpr size_t kHeaders = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(dcbmsg));
  if (answer.size() < kHeaders) return std::nullopt;
  std::memcpy(&header, answer.data(), sizeof(header));
  if (header.nlmsg_type != RTM_GETDCB || header.nlmsg_len < kHeaders ||
      header.nlmsg_len > answer.size()) {
    return std::nullopt;
  }
  const auto all = answer.subspan(kHeaders, header.nlmsg_len - kHeaders);
  const auto pfc = attribute(attribute(all, DCB_ATTR_IEEE), DCB_ATTR_IEEE_PFC);
  if (pfc.size() < sizeof(ieee_pfc)) return std::nullopt;
  return std::to_integer<uint8_t>(pfc[offsetof(ieee_pfc, pfc_en)]);
}

std::optional<uint8_t> ask_pfc(const std::string& netdev) {
  const FileDescriptor netlink = make_socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
  if (!netlink || netdev.size() >= IFNAMSIZ) return std::nullopt;
  const timeval limit = {.tv_sec = 1, .tv_usec = 0};
  setsockopt(netlink.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  const DcbRequest request = dcb_request(netdev);
  if (send(netlink.get(), &request, sizeof(request), 0) < 0) return std::nullopt;
  std::array<std::byte, 8192> answer;
  const ssize_t size = recv(netlink.get(), answer.data(), answer.size(), 0);
  if (size <= 0) return std::nullopt;
  return parse_pfc(std::span(answer).first(static_cast<size_t>(size)));
}

Counters ask_statistics(const std::string& netdev) {
  const FileDescriptor socket = make_socket(AF_INET, SOCK_DGRAM, 0);
  if (!socket || netdev.size() >= IFNAMSIZ) return {};
  const uint32_t count = count_statistics(socket, netdev);
  // In words of 64 bits, for the alignment of the values; a name takes ETH_GSTRING_LEN bytes. Room
  // for a driver that has gained statistics since they were counted.
  const size_t room = 2 * static_cast<size_t>(count) + 16;
  std::vector<uint64_t> names(2 + room * ETH_GSTRING_LEN / sizeof(uint64_t));
  std::vector<uint64_t> values(1 + room);
  const ethtool_gstrings names_header{
      .cmd = ETHTOOL_GSTRINGS, .string_set = ETH_SS_STATS, .len = count};
  std::memcpy(names.data(), &names_header, sizeof(names_header));
  const ethtool_stats values_header{.cmd = ETHTOOL_GSTATS, .n_stats = count};
  std::memcpy(values.data(), &values_header, sizeof(values_header));
  if (count == 0 || !ethtool(socket, netdev, names.data()) ||
      !ethtool(socket, netdev, values.data())) {
    return {};
  }
  Counters counters;
  const char* name = reinterpret_cast<const char*>(names.data()) + sizeof(ethtool_gstrings);
  for (uint32_t i = 0; i < count; ++i, name += ETH_GSTRING_LEN) {
    counters[std::string(name, strnlen(name, ETH_GSTRING_LEN))] = values[1 + i];
  }
  return counters;
}

// Sysfs shows the interfaces of the namespace that mounted it; this counts our namespace's own.
size_t count_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return 0;
  std::set<std::string> names;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    const bool up = (one->ifa_flags & IFF_UP) != 0 && one->ifa_addr != nullptr;
    const int family = up ? one->ifa_addr->sa_family : AF_UNSPEC;
    if (family == AF_INET || family == AF_INET6) names.insert(one->ifa_name);
  }
  freeifaddrs(list);
  return names.size();
}

}  // namespace pacecar::preflight
