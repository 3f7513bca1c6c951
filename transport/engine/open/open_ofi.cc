#include <fmt/format.h>
#include <rdma/fi_domain.h>

#include <algorithm>
#include <array>
#include <utility>

#include "transport/base/return_if_error.h"
#include "transport/engine/clock.h"
#include "transport/engine/open/back_ends.h"
#include "transport/engine/open/bootstrap_choice.h"
#include "transport/engine/open/open_kinds.h"
#include "transport/io/sockaddr.h"
#include "transport/io/udp/interfaces.h"
#include "transport/ofi/ofi_nic.h"

namespace pacecar {
namespace {

// The address of the bootstrap's TCP connections: the provider's own if it is an IP address.
Result<Address> address_of(const OfiProvider& provider, const std::string& wish) {
  const fi_info& info = *provider.info;
  const bool ip = info.addr_format == FI_SOCKADDR || info.addr_format == FI_SOCKADDR_IN ||
                  info.addr_format == FI_SOCKADDR_IN6;
  if (ip && info.src_addr != nullptr) {
    Address address = from_sockaddr(*static_cast<const SocketAddress*>(info.src_addr));
    address.port = 0;
    return address;
  }
  return bootstrap_address(wish, {});
}

std::string pci_path(const fi_info& info) {
  if (info.nic == nullptr || info.nic->bus_attr == nullptr ||
      info.nic->bus_attr->bus_type != FI_BUS_PCI) {
    return {};
  }
  const fi_pci_attr& pci = info.nic->bus_attr->attr.pci;
  return pci_device_path(fmt::format("{:04x}:{:02x}:{:02x}.{:x}", pci.domain_id, pci.bus_id,
                                     pci.device_id, pci.function_id));
}

std::string abilities(const OfiTraits& traits) {
  const std::string_view notification = traits.notification == OfiNotification::kWithWrite
                                            ? "notifies with each write"
                                        : traits.notification == OfiNotification::kAfterWrite
                                            ? "notifies by a message after each write"
                                            : "notifies after a write's acknowledgement";
  return fmt::format("{}; {} writes, up to {} bytes inline; {}", notification,
                     traits.ordered ? "ordered" : "unordered", traits.inject,
                     traits.gpu_memory ? "GPU memory" : "memory of the host");
}

// The NCCL protocols that do not work over the provider, for a log line; empty: all work. A GPU
// polls flags while a message is written. LL needs words of 8 bytes that become visible at once, or
// low bytes first; LL128 needs the words of a line in order. RDMA NICs provide both. The kernel,
// which copies for tcp, may store a line in any order.
std::string_view what_nccl_must_avoid(const OfiProvider& provider) {
  constexpr std::array<std::string_view, 2> kCopiedByKernel = {"tcp", "net"};
  const std::string_view layer = lowest_layer(provider.name);
  if (layer == "verbs") return {};
  const bool copied = std::ranges::find(kCopiedByKernel, layer) != kCopiedByKernel.end();
  return copied ? "LL128 (NCCL_PROTO=^LL128)" : "LL and LL128 (NCCL_PROTO=Simple)";
}

// "tcp:eth0": a provider and, perhaps, its domain.
std::pair<std::string, std::string> provider_and_domain(const std::string& device) {
  const size_t colon = device.find(':');
  if (colon == std::string::npos) return {device, ""};
  return {device.substr(0, colon), device.substr(colon + 1)};
}

// The same number in all processes of this host.
uint64_t guid_of(const OfiProvider& provider) {
  uint64_t guid = 14695981039346656037U;
  for (const char letter : provider.name + ":" + provider.domain) {
    guid = (guid ^ static_cast<uint8_t>(letter)) * 1099511628211U;
  }
  return guid;
}

}  // namespace

Result<std::vector<FabricProvider>> list_fabric_providers() {
  ASSIGN_OR_RETURN(const auto providers, list_ofi_providers());
  std::vector<FabricProvider> listed;
  for (const OfiProvider& provider : providers) {
    listed.push_back({.name = fmt::format("ofi:{}:{}", provider.name, provider.domain),
                      .abilities = abilities(provider.traits)});
  }
  return listed;
}

Result<OpenedNic> open_ofi_nic(const NicCandidate& candidate, const Params& params,
                               const LogSink& log) {
  const auto [name, domain] = provider_and_domain(candidate.device);
  ASSIGN_OR_RETURN(auto provider,
                   choose_ofi_provider(name, domain, params.gpu != GpuSetting::kHost));
  ASSIGN_OR_RETURN(const auto address, address_of(provider, params.bootstrap));
  if (const std::string_view avoid = what_nccl_must_avoid(provider); !avoid.empty()) {
    log(LogLevel::kWarn,
        fmt::format("{}: the bytes of a write may arrive in any order there: keep NCCL from {}",
                    candidate.name(), avoid));
  }
  const auto interface = find_interface(provider.domain);
  const Rate device_speed =
      provider.traits.speed.bps() != 0 || !interface ? provider.traits.speed : interface->speed;
  const Rate speed = params.line_rate.bps() != 0 ? params.line_rate : device_speed;
  const std::string pci = interface ? interface->pci_path : pci_path(*provider.info);
  const std::string device = provider.domain;
  const uint64_t guid = guid_of(provider);
  const bool host_only = interface && interface->loopback;
  ASSIGN_OR_RETURN(auto nic, OfiNic::open({.name = candidate.name(),
                                           .flows = params.max_flows,
                                           .queue_pairs = params.max_flows * 2,
                                           .regions = params.max_regions,
                                           .paths = params.ofi_endpoints,
                                           .chunk = params.chunk,
                                           .line_rate = speed,
                                           .silence_limit = params.timeout * 6 / 10,
                                           .address = address},
                                          std::move(provider), clock_now()));
  return OpenedNic{.name = candidate.name(),
                   .device = device,
                   .pci_path = pci,
                   .guid = guid,
                   .speed = speed,
                   .port = std::move(nic),
                   .host_only = host_only};
}

}  // namespace pacecar
