#include "transport/engine/open/open_nic.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "transport/base/return_if_error.h"
#include "transport/engine/clock.h"
#include "transport/engine/cores/multi_core_port.h"
#include "transport/engine/open/open_io.h"
#include "transport/engine/open/open_kinds.h"
#include "transport/engine/open/tags.h"
#include "transport/engine/soft_port.h"
#include "transport/io/udp/interfaces.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

bool takes_engines(const NicCandidate& candidate, const Params& params) {
  return candidate.kind == NicKind::kSoftUdp && params.wire == WireMode::kExtended;
}

Result<std::unique_ptr<NicPort>> open_engines(const InterfaceInfo& interface, const Params& params,
                                              uint32_t engines,
                                              std::unique_ptr<Processors> processors,
                                              const LogSink& log) {
  ASSIGN_OR_RETURN(auto ios, open_ios(params, interface, engines, log));
  const CoreThreadConfig config{
      .clock = clock_now, .spin = params.spin, .blind = !params.fault.empty()};
  return MultiCorePort::make(make_soft_ports(params, std::move(ios), clock_now()), config,
                             std::move(processors));
}

Result<std::unique_ptr<NicPort>> open_port(const NicCandidate& candidate,
                                           const InterfaceInfo& interface, const Params& params,
                                           const LogSink& log) {
  if (params.engines != 1 && takes_engines(candidate, params)) {
    auto processors = std::make_unique<Processors>(interface.name);
    const Rate speed = params.line_rate.bps() != 0 ? params.line_rate : interface.speed;
    const uint32_t engines =
        params.engines != 0 ? params.engines : engines_for(processors->count(), speed);
    if (engines > 1) return open_engines(interface, params, engines, std::move(processors), log);
  }
  const Sockets sockets = candidate.kind == NicKind::kSoftRaw ? Sockets::kRaw : Sockets::kUdp;
  ASSIGN_OR_RETURN(auto io, open_io(params, interface, sockets, log));
  return make_soft_port(params, std::move(io), clock_now());
}

Result<OpenedNic> open_soft(const NicCandidate& candidate, const Params& params,
                            const LogSink& log) {
  ASSIGN_OR_RETURN(auto interface, find_interface(candidate.device));
  ASSIGN_OR_RETURN(auto port, open_port(candidate, interface, params, log));
  const bool host_only = is_loopback(port->address());
  return OpenedNic{.name = candidate.name(),
                   .device = candidate.device,
                   .pci_path = interface.pci_path,
                   .guid = interface.guid,
                   .speed = params.line_rate.bps() != 0 ? params.line_rate : interface.speed,
                   .port = std::move(port),
                   .host_only = host_only};
}

Result<OpenedNic> open_kind(const NicCandidate& candidate, const Params& params,
                            const LogSink& log) {
  if (candidate.kind == NicKind::kVerbs) return open_verbs_nic(candidate, params, log);
  if (candidate.kind == NicKind::kSoftDpdk) return open_dpdk_nic(candidate, params, log);
  if (candidate.kind == NicKind::kOfi) return open_ofi_nic(candidate, params, log);
  return open_soft(candidate, params, log);
}

Result<void> check_security(const NicCandidate& candidate, const Params& params,
                            const LogSink& log) {
  if (candidate.kind == NicKind::kOfi) {
    return accept_without_tags(candidate.name(), "libfabric's packets", false, params, log);
  }
  const bool software = candidate.kind != NicKind::kVerbs;
  if (software && params.wire == WireMode::kExtended) return {};
  // With PACECAR_WIRE=auto only the peer's offer decides whether a connection is extended.
  const bool by_peer = software && params.wire == WireMode::kAuto;
  return accept_without_tags(candidate.name(), "standard RDMA packets", by_peer, params, log);
}

}  // namespace

std::string pci_device_path(const std::string& address) {
  std::error_code error;
  return std::filesystem::canonical("/sys/bus/pci/devices/" + address, error);
}

Result<std::vector<NicCandidate>> list_nics(std::string_view selection) {
  ASSIGN_OR_RETURN(const auto interfaces, list_interfaces());
  std::vector<NicCandidate> nics = list_verbs_nics();
  const auto software = soft_candidates(interfaces, selection);
  nics.insert(nics.end(), software.begin(), software.end());
  return nics;
}

Result<OpenedNic> open_nic(const NicCandidate& candidate, const Params& params,
                           const LogSink& log) {
  RETURN_IF_ERROR(check_security(candidate, params, log));
  if (params.engines > 1 && !takes_engines(candidate, params)) {
    log(LogLevel::kWarn,
        fmt::format("{}: one engine, not PACECAR_ENGINES={}: several are for software NICs on UDP "
                    "sockets (soft:udp:...) with PACECAR_WIRE=extended",
                    candidate.name(), params.engines));
  }
  auto nic = open_kind(candidate, params, log);
  if (nic) share_link(*nic, params, log);
  return nic;
}

}  // namespace pacecar
