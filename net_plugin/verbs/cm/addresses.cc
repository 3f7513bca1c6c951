// Ids with their addresses and ports, and the device by the route to the peer.
#include <fmt/format.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "net_plugin/verbs/cm/ids.h"
#include "transport/base/random_word.h"
#include "transport/io/sockaddr.h"
#include "transport/wire/address.h"

namespace pacecar::ibverbs::cm {
namespace {

constexpr uint16_t kFirstAnyPort = 32768;
constexpr uint16_t kAnyPorts = 28000;
constexpr int kPortTries = 64;

const sockaddr* source_of(const Id& id) { return &id.route.addr.src_addr; }

void put(const Address& address, sockaddr_storage* to) {
  SocketAddress raw;
  const socklen_t length = to_sockaddr(address, raw);
  *to = sockaddr_storage{};
  std::memcpy(to, &raw, length);
}

uint16_t any_port() { return static_cast<uint16_t>(kFirstAnyPort + random_word() % kAnyPorts); }

// 0 or an errno.
int bind_to(Id& id, const sockaddr* address) {
  const auto wanted = from_sockaddr(address);
  if (!wanted) return EINVAL;
  Address own = *wanted;
  id.any_address = is_unspecified(own);
  if (!id.any_address) {
    CmDevice* const device = device_at(own);
    if (device == nullptr) return errno;
    id.use(*device);
  }
  const bool chosen = own.port != 0;
  for (int tries = 0; tries < kPortTries; ++tries) {
    if (!chosen) own.port = any_port();
    id.set_source(own);
    if (reserve_port(id)) return 0;
    if (chosen && !id.reuse_address) break;
    if (chosen) return 0;  // rdma_listen will reserve it
  }
  id.route.addr.src_storage = {};
  return errno;
}

int resolve(Id& id, const sockaddr* destination) {
  const auto to = from_sockaddr(destination);
  if (!to) return EINVAL;
  const auto source = source_towards(*to, from_sockaddr(source_of(id)));
  if (!source) return errno;
  if (id.device == nullptr) {
    CmDevice* const device = device_at(*source);
    if (device == nullptr) return errno;
    id.use(*device);
  }
  Address own = id.device->address();
  if (is_ipv4(own) != is_ipv4(*to)) return EAFNOSUPPORT;
  own.port = port_of(id, true) != 0 ? port_of(id, true) : any_port();
  id.set_source(own);
  id.set_destination(*to);
  return 0;
}

}  // namespace

uint16_t port_of(const Id& id, bool source) {
  const auto address = from_sockaddr(source ? source_of(id) : &id.route.addr.dst_addr);
  return address ? address->port : 0;
}

// Ports belong to the host. So that processes use different ones, a process binds an abstract
// socket with the port's name; the kernel releases the name when the process ends.
bool reserve_port(Id& id) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const Address own = from_sockaddr(source_of(id)).value_or(Address());
  const auto text =
      fmt::format("pacecar-rdma-{:x}-{}", static_cast<unsigned>(id.ps), pacecar::to_string(own));
  std::copy_n(text.data(), std::min(text.size(), sizeof name.sun_path - 1), name.sun_path + 1);
  FileDescriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  if (!socket || bind(socket.get(), reinterpret_cast<sockaddr*>(&name), length) != 0) return false;
  id.reservation = std::move(socket);
  return true;
}

Id::Id(rdma_event_channel* events, void* user, rdma_port_space space) : rdma_cm_id{} {
  channel = events;
  context = user;
  ps = space;
  qp_type = space == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC;
  first_psn = random_word() & 0xFF'FFFF;
  responder_resources = initiator_depth = kMaxReads;
}

void Id::use(CmDevice& used) {
  device = &used;
  verbs = used.context;
  pd = used.pd;
  port_num = 1;
  ibv_port_attr port;
  mtu = ibv_query_port(verbs, 1, &port) == 0 ? port.active_mtu : IBV_MTU_1024;
  rdma_ib_addr& ends = route.addr.addr.ibaddr;
  std::ranges::copy(used.address().ip, ends.sgid.raw);
  ends.pkey = 0xFFFF;
}

void Id::set_source(const Address& from) { put(from, &route.addr.src_storage); }

void Id::set_destination(const Address& to) {
  put(to, &route.addr.dst_storage);
  rdma_ib_addr& ends = route.addr.addr.ibaddr;
  std::ranges::copy(to.ip, ends.dgid.raw);
  path = ibv_sa_path_rec{};
  path.dgid = ends.dgid;
  path.sgid = ends.sgid;
  path.hop_limit = 64;
  path.reversible = 1;
  path.numb_path = 1;
  path.pkey = ends.pkey;
  path.mtu_selector = path.rate_selector = path.packet_life_time_selector = 2;  // exactly
  path.mtu = static_cast<uint8_t>(mtu);
  path.packet_life_time = 18;
}

extern "C" {

PACECAR_VERBS int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                                 rdma_port_space space) {
  if (space != RDMA_PS_TCP && space != RDMA_PS_UDP) return failed(EPROTONOSUPPORT);
  const bool alone = channel == nullptr;
  if (alone) channel = rdma_create_event_channel();
  if (channel == nullptr) return -1;
  Id* const created = made([&] { return new Id(channel, context, space); });
  if (created == nullptr) return -1;
  created->synchronous = alone;
  *id = created;
  return 0;
}

PACECAR_VERBS int rdma_bind_addr(rdma_cm_id* id, sockaddr* address) {
  OWN_ID(own, id);
  const int error = bind_to(own, address);
  return error == 0 ? 0 : failed(error);
}

PACECAR_VERBS int rdma_resolve_addr(rdma_cm_id* id, sockaddr* source, sockaddr* destination,
                                    int /*timeout_ms*/) {
  OWN_ID(own, id);
  int error = 0;
  if (source != nullptr && !from_sockaddr(source_of(own))) error = bind_to(own, source);
  if (error == 0) error = resolve(own, destination);
  if (error == ENODEV || error == EINVAL) return failed(error);
  raise(own, error == 0 ? RDMA_CM_EVENT_ADDR_RESOLVED : RDMA_CM_EVENT_ADDR_ERROR, -error);
  return complete(own);
}

PACECAR_VERBS int rdma_resolve_route(rdma_cm_id* id, int /*timeout_ms*/) {
  OWN_ID(own, id);
  if (own.device == nullptr || !from_sockaddr(&own.route.addr.dst_addr)) return failed(EINVAL);
  own.route.path_rec = &own.path;
  own.route.num_paths = 1;
  raise(own, RDMA_CM_EVENT_ROUTE_RESOLVED);
  return complete(own);
}

PACECAR_VERBS __be16 rdma_get_src_port(rdma_cm_id* id) {
  return htons(cm::port_of(id_of(id), true));
}
PACECAR_VERBS __be16 rdma_get_dst_port(rdma_cm_id* id) {
  return htons(cm::port_of(id_of(id), false));
}

PACECAR_VERBS int rdma_set_option(rdma_cm_id* id, int level, int option, void* value,
                                  size_t length) {
  OWN_ID(own, id);
  if (level != RDMA_OPTION_ID || value == nullptr) return failed(ENOSYS);
  switch (option) {
    case RDMA_OPTION_ID_TOS:     // PACECAR_TC sets it
    case RDMA_OPTION_ID_AFONLY:  // a device has one address
      return 0;
    case RDMA_OPTION_ID_REUSEADDR:
      if (length != sizeof(int)) return failed(EINVAL);
      own.reuse_address = *static_cast<const int*>(value) != 0;
      return 0;
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      if (length != sizeof(uint8_t)) return failed(EINVAL);
      own.ack_timeout = *static_cast<const uint8_t*>(value) & 31;
      return 0;
    default: return failed(ENOSYS);
  }
}

}  // extern "C"
}  // namespace pacecar::ibverbs::cm
