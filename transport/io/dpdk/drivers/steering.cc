#include "transport/io/dpdk/drivers/steering.h"

#include <rte_byteorder.h>
#include <rte_errno.h>
#include <rte_flow.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "transport/wire/address.h"

namespace pacecar {
namespace {

std::string reason(const rte_flow_error& error) {
  return error.message != nullptr ? error.message : rte_strerror(rte_errno);
}

}  // namespace

tl::expected<void, std::string> isolate_device(uint16_t port_id) {
  rte_flow_error error{};
  if (rte_flow_isolate(port_id, 1, &error) == 0) return {};
  return tl::unexpected(reason(error));
}

tl::expected<void, std::string> steer_datagrams(uint16_t port_id, const Address& to) {
  rte_flow_item_ipv4 ipv4{};
  rte_flow_item_ipv4 ipv4_mask{};
  std::memcpy(&ipv4.hdr.dst_addr, &to.ip[kIpv4Prefix.size()], sizeof ipv4.hdr.dst_addr);
  ipv4_mask.hdr.dst_addr = UINT32_MAX;
  rte_flow_item_ipv6 ipv6{};
  rte_flow_item_ipv6 ipv6_mask{};
  std::ranges::copy(to.ip, ipv6.hdr.dst_addr);
  std::ranges::fill(ipv6_mask.hdr.dst_addr, UINT8_MAX);
  rte_flow_item_udp udp{};
  rte_flow_item_udp udp_mask{};
  udp.hdr.dst_port = rte_cpu_to_be_16(to.port);
  udp_mask.hdr.dst_port = UINT16_MAX;
  const rte_flow_item ip = is_ipv4(to)
                               ? rte_flow_item{RTE_FLOW_ITEM_TYPE_IPV4, &ipv4, nullptr, &ipv4_mask}
                               : rte_flow_item{RTE_FLOW_ITEM_TYPE_IPV6, &ipv6, nullptr, &ipv6_mask};
  const std::array<rte_flow_item, 4> pattern = {
      {{RTE_FLOW_ITEM_TYPE_ETH, nullptr, nullptr, nullptr},
       ip,
       {RTE_FLOW_ITEM_TYPE_UDP, &udp, nullptr, &udp_mask},
       {RTE_FLOW_ITEM_TYPE_END, nullptr, nullptr, nullptr}}};
  const rte_flow_action_queue queue{.index = 0};
  const std::array<rte_flow_action, 2> actions = {
      {{RTE_FLOW_ACTION_TYPE_QUEUE, &queue}, {RTE_FLOW_ACTION_TYPE_END, nullptr}}};
  rte_flow_attr attributes{};
  attributes.ingress = 1;
  rte_flow_error error{};
  if (rte_flow_create(port_id, &attributes, pattern.data(), actions.data(), &error) != nullptr) {
    return {};
  }
  return tl::unexpected(reason(error));
}

}  // namespace pacecar
