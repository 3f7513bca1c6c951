// rdma_getaddrinfo, and ids that are created from its results.
#include <netdb.h>

#include <cerrno>
#include <cstring>

#include "net_plugin/verbs/cm/ids.h"

namespace pacecar::ibverbs::cm {
namespace {

// With the addresses that rdma_addrinfo points to.
struct AddressInfo : rdma_addrinfo {
  void set_source(const sockaddr* address, socklen_t length) {
    ai_src_addr = static_cast<sockaddr*>(std::memcpy(&source, address, length));
    ai_src_len = length;
  }
  void set_destination(const sockaddr* address, socklen_t length) {
    ai_dst_addr = static_cast<sockaddr*>(std::memcpy(&destination, address, length));
    ai_dst_len = length;
  }

  sockaddr_storage source{};
  sockaddr_storage destination{};
};

bool passive(const rdma_addrinfo& info) { return (info.ai_flags & RAI_PASSIVE) != 0; }

// 0, or an error of getaddrinfo.
int look_up(const char* node, const char* service, const rdma_addrinfo& hints, AddressInfo& info) {
  addrinfo wanted{};
  wanted.ai_flags = (passive(hints) ? AI_PASSIVE : 0) |
                    ((hints.ai_flags & RAI_NUMERICHOST) != 0 ? AI_NUMERICHOST : 0);
  wanted.ai_family = hints.ai_family;
  wanted.ai_socktype = info.ai_port_space == RDMA_PS_UDP ? SOCK_DGRAM : SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(node, service, &wanted, &found);
  if (error != 0) return error;
  info.ai_family = found->ai_family;
  if (passive(hints)) {
    info.set_source(found->ai_addr, found->ai_addrlen);
  } else {
    info.set_destination(found->ai_addr, found->ai_addrlen);
  }
  freeaddrinfo(found);
  return 0;
}

int prepare(Id& id, rdma_addrinfo& info, ibv_pd* pd, ibv_qp_init_attr* attr) {
  if (attr != nullptr) attr->qp_type = static_cast<ibv_qp_type>(info.ai_qp_type);
  if (passive(info)) {
    if (rdma_bind_addr(&id, info.ai_src_addr) != 0) return -1;
    if (attr != nullptr) id.made_for = *attr;
  } else {
    constexpr int kTimeoutMs = 2000;
    if (rdma_resolve_addr(&id, info.ai_src_addr, info.ai_dst_addr, kTimeoutMs) != 0) return -1;
    if (rdma_resolve_route(&id, kTimeoutMs) != 0) return -1;
    if (attr != nullptr) return rdma_create_qp(&id, pd, attr);
  }
  if (pd != nullptr) id.pd = pd;
  return 0;
}

}  // namespace

extern "C" {

PACECAR_VERBS int rdma_getaddrinfo(const char* node, const char* service,
                                   const rdma_addrinfo* hints, rdma_addrinfo** result) {
  if (node == nullptr && service == nullptr) return failed(EINVAL);
  static constexpr rdma_addrinfo kNone{};
  const rdma_addrinfo& wanted = hints != nullptr ? *hints : kNone;
  auto info = std::make_unique<AddressInfo>();
  static_cast<rdma_addrinfo&>(*info) = rdma_addrinfo{};
  info->ai_flags = wanted.ai_flags;
  info->ai_qp_type = wanted.ai_qp_type;
  info->ai_port_space = wanted.ai_port_space;
  if (info->ai_port_space == 0) {
    info->ai_port_space = wanted.ai_qp_type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
  }
  if (info->ai_qp_type == 0) {
    info->ai_qp_type = info->ai_port_space == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC;
  }
  if (const int error = look_up(node, service, wanted, *info); error != 0) return error;
  if (!passive(wanted) && wanted.ai_src_addr != nullptr &&
      wanted.ai_src_len <= sizeof(sockaddr_storage)) {
    info->set_source(wanted.ai_src_addr, wanted.ai_src_len);
  }
  *result = info.release();
  return 0;
}

PACECAR_VERBS void rdma_freeaddrinfo(rdma_addrinfo* info) {
  while (info != nullptr) {
    rdma_addrinfo* const next = info->ai_next;
    delete static_cast<AddressInfo*>(info);
    info = next;
  }
}

PACECAR_VERBS int rdma_create_ep(rdma_cm_id** id, rdma_addrinfo* info, ibv_pd* pd,
                                 ibv_qp_init_attr* attr) {
  rdma_cm_id* made = nullptr;
  const auto space = static_cast<rdma_port_space>(info->ai_port_space);
  if (rdma_create_id(nullptr, &made, nullptr, space) != 0) return -1;
  if (prepare(id_of(made), *info, pd, attr) != 0) {
    const int error = errno;
    rdma_destroy_ep(made);
    return failed(error);
  }
  *id = made;
  return 0;
}

PACECAR_VERBS void rdma_destroy_ep(rdma_cm_id* id) {
  rdma_destroy_qp(id);
  rdma_destroy_srq(id);
  rdma_destroy_id(id);
}

}  // extern "C"
}  // namespace pacecar::ibverbs::cm
