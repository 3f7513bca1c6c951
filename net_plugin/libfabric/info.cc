#include "net_plugin/libfabric/info.h"

#include <fmt/format.h>
#include <netdb.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <ranges>
#include <sstream>
#include <vector>

#include "net_plugin/libfabric/core/frame.h"
#include "net_plugin/libfabric/objects.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/params_environment.h"
#include "transport/engine/open/open_nic.h"
#include "transport/io/sockaddr.h"
#include "transport/io/udp/interfaces.h"
#include "transport/wire/address.h"

namespace pacecar::fabric {
namespace {

constexpr uint64_t kPrimary = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC;
constexpr uint64_t kTransmitting = FI_READ | FI_WRITE | FI_SEND;
constexpr uint64_t kReceiving = FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;
constexpr uint64_t kDomainCaps = FI_LOCAL_COMM | FI_REMOTE_COMM;
constexpr uint64_t kTxCaps = kPrimary | kTransmitting;
constexpr uint64_t kRxCaps =
    kPrimary | kReceiving | FI_MULTI_RECV | FI_SOURCE | FI_DIRECTED_RECV | FI_RMA_EVENT;
constexpr uint64_t kTxFlags =
    FI_INJECT | FI_COMPLETION | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;
constexpr uint64_t kRxFlags = FI_COMPLETION | FI_MULTI_RECV;
// Frames are handled in the order of sending. The data of an offer is transferred later.
constexpr uint64_t kOrder = FI_ORDER_SAS | FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW |
                            FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW | FI_ORDER_RMA_RAW |
                            FI_ORDER_RMA_WAR | FI_ORDER_RMA_WAW | FI_ORDER_RMA_RAR | FI_ORDER_RAR |
                            FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW;
constexpr size_t kMaxBuffered = size_t{256} << 20;

using OwnedInfo = std::unique_ptr<fi_info, decltype([](fi_info* info) { fi_freeinfo(info); })>;

// The hints of fi_getinfo, with all their parts: 0 where nothing is wanted.
struct Wanted {
  explicit Wanted(const fi_info* hints) {
    if (hints == nullptr) return;
    info = *hints;
    if (hints->tx_attr != nullptr) tx = *hints->tx_attr;
    if (hints->rx_attr != nullptr) rx = *hints->rx_attr;
    if (hints->ep_attr != nullptr) ep = *hints->ep_attr;
    if (hints->domain_attr != nullptr) domain = *hints->domain_attr;
    if (hints->fabric_attr != nullptr) fabric = *hints->fabric_attr;
  }

  fi_info info{};
  fi_tx_attr tx{};
  fi_rx_attr rx{};
  fi_ep_attr ep{};
  fi_domain_attr domain{.av_type = FI_AV_MAP};
  fi_fabric_attr fabric{};
};

// What transmit and receive contexts have in common.
template <typename Attr>
bool context_fits(const Attr& wanted, uint64_t caps, uint64_t flags) {
  return (wanted.caps & ~(caps | kDomainCaps | FI_HMEM)) == 0 && (wanted.op_flags & ~flags) == 0 &&
         (wanted.msg_order & ~kOrder) == 0 && wanted.comp_order == FI_ORDER_NONE &&
         wanted.size <= kMaxOperations && wanted.iov_limit <= kMaxIov;
}

bool ep_fits(const fi_ep_attr& wanted) {
  return (wanted.type == FI_EP_UNSPEC || wanted.type == FI_EP_RDM) &&
         wanted.protocol == FI_PROTO_UNSPEC && wanted.max_msg_size <= kMaxMessageBytes &&
         wanted.max_order_raw_size <= kEagerBytes && wanted.max_order_war_size <= kEagerBytes &&
         wanted.max_order_waw_size <= kEagerBytes && wanted.tx_ctx_cnt <= 1 &&
         wanted.rx_ctx_cnt <= 1 && wanted.auth_key_size == 0;
}

bool domain_fits(const fi_domain_attr& wanted) {
  return wanted.cq_data_size <= sizeof(uint64_t) && wanted.mr_key_size <= sizeof(uint64_t) &&
         wanted.auth_key_size == 0 && (wanted.caps & ~kDomainCaps) == 0;
}

bool fits(const Wanted& wanted) {
  const uint32_t as = wanted.info.addr_format;
  const bool format =
      as == FI_FORMAT_UNSPEC || as == FI_SOCKADDR || as == FI_SOCKADDR_IN || as == FI_SOCKADDR_IN6;
  const bool fabric =
      wanted.fabric.name == nullptr || std::strcmp(wanted.fabric.name, kProviderName) == 0;
  const bool caps = (wanted.info.caps & ~(kTxCaps | kRxCaps | kDomainCaps | FI_HMEM)) == 0;
  const bool tx = context_fits(wanted.tx, kTxCaps, kTxFlags) &&
                  wanted.tx.inject_size <= kMaxInjectBytes && wanted.tx.rma_iov_limit <= 1;
  const bool rx =
      context_fits(wanted.rx, kRxCaps, kRxFlags) && wanted.rx.total_buffered_recv <= kMaxBuffered;
  const bool domain = domain_fits(wanted.domain);
  if (!format || !fabric || !caps || !tx || !rx || !domain || !ep_fits(wanted.ep)) return false;
  // FI_HMEM requires FI_MR_HMEM: each GPU buffer is passed with its descriptor.
  return (wanted.info.caps & FI_HMEM) == 0 ||
         ((wanted.domain.mr_mode & FI_MR_HMEM) != 0 && gpus_of_process().has_value());
}

// The capabilities in the hints, and the capabilities that these imply.
uint64_t caps_for(uint64_t requested) {
  if (requested == 0) return kTxCaps | kRxCaps | kDomainCaps;
  uint64_t caps = requested | kDomainCaps;
  if ((caps & (FI_MSG | FI_TAGGED)) != 0 && (caps & (FI_SEND | FI_RECV)) == 0) {
    caps |= FI_SEND | FI_RECV;
  }
  const uint64_t rma = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  if ((caps & (FI_RMA | FI_ATOMIC)) != 0 && (caps & rma) == 0) caps |= rma;
  return caps;
}

int mr_mode_for(uint32_t version, int requested) {
  if (requested == FI_MR_BASIC || requested == FI_MR_SCALABLE) return requested;
  return FI_VERSION_LT(version, FI_VERSION(1, 5)) ? FI_MR_SCALABLE : 0;
}

template <typename T>
T or_default(T requested, T otherwise) {
  return requested != 0 ? requested : otherwise;
}

template <typename Attr>
void describe_context(const Attr& wanted, uint64_t caps, Attr& attr) {
  attr.caps = caps;
  attr.op_flags = wanted.op_flags;
  attr.msg_order = or_default(wanted.msg_order, kOrder);
  // MPI programs post that many and more before anything can match.
  attr.size = or_default<size_t>(wanted.size, 1 << 16);
  attr.iov_limit = kMaxIov;
}

void describe_domain(uint32_t version, const fi_domain_attr& wanted, fi_info& info) {
  fi_domain_attr& domain = *info.domain_attr;
  domain.threading = or_default(wanted.threading, FI_THREAD_SAFE);
  domain.control_progress = or_default(wanted.control_progress, FI_PROGRESS_MANUAL);
  domain.data_progress = or_default(wanted.data_progress, FI_PROGRESS_MANUAL);
  domain.av_type = wanted.av_type;
  domain.resource_mgmt = FI_RM_ENABLED;
  domain.mr_mode = mr_mode_for(version, wanted.mr_mode);
  if ((info.caps & FI_HMEM) != 0) domain.mr_mode |= FI_MR_HMEM;
  domain.mr_key_size = domain.cq_data_size = sizeof(uint64_t);
  domain.cq_cnt = domain.cntr_cnt = domain.mr_cnt = 1 << 16;
  domain.ep_cnt = domain.tx_ctx_cnt = domain.rx_ctx_cnt = 1 << 12;
  domain.max_ep_tx_ctx = domain.max_ep_rx_ctx = domain.mr_iov_limit = 1;
  domain.caps = kDomainCaps;
}

void describe_endpoint(const fi_ep_attr& wanted, fi_ep_attr& endpoint) {
  endpoint.type = FI_EP_RDM;
  endpoint.protocol_version = 1;
  endpoint.max_msg_size = kMaxMessageBytes;
  endpoint.max_order_raw_size = endpoint.max_order_war_size = kEagerBytes;
  endpoint.max_order_waw_size = kEagerBytes;
  endpoint.mem_tag_format = or_default(wanted.mem_tag_format, ~uint64_t{0});
  endpoint.tx_ctx_cnt = endpoint.rx_ctx_cnt = 1;
}

void set_address(void*& place, size_t& bytes, const Address& name) {
  bytes = sizeof(sockaddr_in6);
  place = std::malloc(bytes);
  if (place == nullptr) throw std::bad_alloc();
  copy_address(name, place, &bytes);
}

OwnedInfo describe(uint32_t version, const Wanted& wanted, const std::string& nic) {
  OwnedInfo owned(fi_allocinfo());
  if (owned == nullptr) throw std::bad_alloc();
  fi_info& info = *owned;
  info.caps = caps_for(wanted.info.caps);
  describe_context(wanted.tx, info.caps & (kTxCaps | FI_HMEM), *info.tx_attr);
  info.tx_attr->inject_size = kMaxInjectBytes;
  info.tx_attr->rma_iov_limit = 1;
  describe_context(wanted.rx, info.caps & (kRxCaps | FI_HMEM), *info.rx_attr);
  info.rx_attr->total_buffered_recv = kMaxBuffered;
  describe_domain(version, wanted.domain, info);
  describe_endpoint(wanted.ep, *info.ep_attr);
  info.domain_attr->name = strdup(nic.c_str());
  info.fabric_attr->name = strdup(kProviderName);
  info.fabric_attr->prov_name = strdup(kProviderName);
  info.fabric_attr->prov_version = FI_VERSION(0, 1);
  info.fabric_attr->api_version = version;
  return owned;
}

std::vector<NicCandidate> usable_nics() {
  const auto params = load_params_from_environment({}, nullptr);
  if (!params) {
    log_warning(params.error().message);
    return {};
  }
  const auto list = own_nics(params->nics);
  if (!list) return {};
  const auto groups = list_nics(params->bootstrap).and_then([&](const auto& all) {
    return choose_nics(*list, all);
  });
  if (!groups) {
    log_warning(groups.error().message);
    return {};
  }
  std::vector<NicCandidate> nics;
  for (const NicGroup& group : *groups) {
    // Connections for puts do not work on bonded NICs.
    if (group.size() == 1) nics.push_back(group[0]);
  }
  return nics;
}

struct Ends {
  std::optional<Address> source;
  std::optional<Address> dest;
};

// nullopt: node or service cannot be resolved.
std::optional<Ends> ends_of(const char* node, const char* service, uint64_t flags,
                            const fi_info& hints, int family) {
  Ends ends;
  if (node != nullptr || service != nullptr) {
    const bool source = (flags & FI_SOURCE) != 0;
    std::optional<Address>& end = source ? ends.source : ends.dest;
    end = resolve(node, service, family, source, (flags & FI_NUMERICHOST) != 0);
    if (!end) return std::nullopt;
  }
  if (!ends.source) ends.source = from_sockaddr(static_cast<const sockaddr*>(hints.src_addr));
  if (!ends.dest) ends.dest = from_sockaddr(static_cast<const sockaddr*>(hints.dest_addr));
  if (!ends.source && ends.dest) {
    ends.source = source_towards(*ends.dest);
    if (ends.source) ends.source->port = 0;
  }
  return ends;
}

// Whether no socket of this host can have the address.
bool is_foreign(Address address) {
  address.port = 0;
  SocketAddress raw;
  const socklen_t bytes = to_sockaddr(address, raw);
  const FileDescriptor socket(::socket(family_of(address), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return socket && bind(socket.get(), &raw.any, bytes) != 0 && errno == EADDRNOTAVAIL;
}

}  // namespace

int get_info(uint32_t version, const char* node, const char* service, uint64_t flags,
             const fi_info* hints, fi_info** info) {
  *info = nullptr;
  const Wanted wanted(hints);
  if (!fits(wanted)) return -FI_ENODATA;
  const uint32_t format = wanted.info.addr_format;
  const int family = format == FI_SOCKADDR_IN    ? AF_INET
                     : format == FI_SOCKADDR_IN6 ? AF_INET6
                                                 : AF_UNSPEC;
  auto ends = ends_of(node, service, flags, wanted.info, family);
  if (!ends) return -FI_ENODATA;
  std::vector<NicCandidate> nics = usable_nics();
  if (const char* const name = wanted.domain.name; name != nullptr) {
    std::erase_if(nics, [&](const NicCandidate& nic) { return nic.name() != name; });
  }
  if (ends->source && is_foreign(*ends->source)) {
    log_warning(fmt::format("{} is no address of this host", ip_to_string(*ends->source)));
    return -FI_ENODATA;
  }
  if (ends->source) {  // NICs with this address come first
    std::ranges::stable_partition(nics, [&](const NicCandidate& nic) {
      const auto own = address_of_device(nic.device, family_of(*ends->source));
      return own && same_ip(*own, *ends->source);
    });
  }
  OwnedInfo first;
  for (const NicCandidate& nic : nics | std::views::reverse) {
    auto source = ends->source;
    const auto own = address_of_device(nic.device, family);
    if (!source) source = own;
    if (!source) continue;
    const bool any = node == nullptr && is_unspecified(*source);
    if (any && own && !is_ipv4(*own)) source->ip = {};  // IPv6, as this NIC has no other
    OwnedInfo made = describe(version, wanted, nic.name());
    made->addr_format = uint32_t{is_ipv4(*source) ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6};
    set_address(made->src_addr, made->src_addrlen, *source);
    if (ends->dest) set_address(made->dest_addr, made->dest_addrlen, *ends->dest);
    made->next = first.release();
    first = std::move(made);
  }
  *info = first.release();
  return *info != nullptr ? 0 : -FI_ENODATA;
}

std::optional<Address> resolve(const char* node, const char* service, int family, bool passive,
                               bool numeric) {
  addrinfo hints{};
  hints.ai_family = family == AF_UNSPEC && node == nullptr ? AF_INET : family;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = (passive ? AI_PASSIVE : 0) | (numeric ? AI_NUMERICHOST : 0);
  addrinfo* found = nullptr;
  if (getaddrinfo(node, service, &hints, &found) != 0) return std::nullopt;
  const auto name = from_sockaddr(found->ai_addr);
  freeaddrinfo(found);
  return name;
}

bool copy_address(const Address& address, void* to, size_t* bytes) {
  SocketAddress raw;
  const size_t room = std::exchange(*bytes, to_sockaddr(address, raw));
  std::memcpy(to, &raw, std::min(room, *bytes));
  return room >= *bytes;
}

int family_of(const Address& address) { return is_ipv4(address) ? AF_INET : AF_INET6; }

std::optional<std::string> own_nics(const std::string& list) {
  std::vector<std::string> own;
  std::istringstream entries(list);
  for (std::string entry; std::getline(entries, entry, ',');) {
    if (entry.find("ofi:") == std::string::npos) own.push_back(entry);
  }
  if (own.empty() && !list.empty()) return std::nullopt;
  return fmt::format("{}", fmt::join(own, ","));
}

std::optional<Address> address_of_device(const std::string& device, int family) {
  auto interfaces = list_interfaces();
  if (!interfaces) {
    log_warning(interfaces.error().message);
    return std::nullopt;
  }
  std::ranges::stable_sort(*interfaces, {}, [&](const InterfaceInfo& one) {
    return one.name == device ? 0 : one.loopback ? 2 : 1;
  });
  for (const InterfaceInfo& one : *interfaces) {
    const auto preferred = family == AF_UNSPEC ? preferred_address(one) : std::nullopt;
    if (preferred) return preferred;
    for (const Address& address : one.addresses) {
      if (family_of(address) == family) return address;
    }
  }
  return std::nullopt;
}

}  // namespace pacecar::fabric
