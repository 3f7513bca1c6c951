#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include "transport/base/fresh_pages.h"
#include "transport/base/return_if_error.h"
#include "transport/engine/clock.h"
#include "transport/engine/open/back_ends.h"
#include "transport/engine/open/bootstrap_choice.h"
#include "transport/engine/open/open_kinds.h"
#include "transport/io/udp/interfaces.h"
#include "transport/verbs/device.h"
#include "transport/verbs/gid_choice.h"
#include "transport/verbs/library.h"
#include "transport/verbs/verbs_nic.h"

namespace pacecar {
namespace {

using Ports = std::vector<std::pair<std::string, VerbsPortInfo>>;  // by name

// Several ports of a device are distinguished by number, as in NCCL.
Ports list_ports() {
  const auto infos = list_verbs_ports();
  if (!infos) return {};  // no kernel support: no RDMA NIC
  Ports ports;
  for (const VerbsPortInfo& info : *infos) {
    const bool several = std::ranges::count(*infos, info.device, &VerbsPortInfo::device) > 1;
    ports.emplace_back(several ? fmt::format("{}:{}", info.device, info.port) : info.device, info);
  }
  return ports;
}

// Checks at opening, not at the first registration, that enough memory can be locked for any use.
Result<void> check_locking(NicMemory& nic) {
  constexpr size_t kLeast = size_t{16} << 20;  // bytes
  const FreshPages memory = make_fresh_pages(kLeast);
  ASSIGN_OR_RETURN(const auto region,
                   nic.register_memory(memory.get(), kLeast, Access::kLocalRead));
  nic.deregister_memory(region);
  return {};
}

std::vector<NicCandidate> kernel_devices(const std::string& flaw) {
  std::vector<NicCandidate> nics;
  std::error_code none;
  for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", none)) {
    nics.push_back({.kind = NicKind::kVerbs,
                    .device = device.path().filename(),
                    .usable = false,
                    .flaw = flaw});
  }
  std::ranges::sort(nics, {}, &NicCandidate::device);
  return nics;
}

}  // namespace

Result<void> find_verbs() { return load_verbs_library(); }

std::vector<NicCandidate> list_verbs_nics() {
  if (const auto found = find_verbs(); !found) return kernel_devices(found.error().message);
  std::vector<NicCandidate> nics;
  for (const auto& [name, port] : list_ports()) {
    nics.push_back({.kind = NicKind::kVerbs,
                    .device = name,
                    .usable = port.active && bootstrap_address({}, port.netdev).has_value()});
  }
  return nics;
}

Result<OpenedNic> open_verbs_nic(const NicCandidate& candidate, const Params& params,
                                 const LogSink& log) {
  const Ports ports = list_ports();
  const auto port = std::ranges::find(ports, candidate.device, &Ports::value_type::first);
  if (port == ports.end()) {
    return fail(ErrorCode::kNotFound,
                fmt::format("the RDMA NIC {} has gone: see 'rdma link'", candidate.device));
  }
  ASSIGN_OR_RETURN(const auto address, bootstrap_address(params.bootstrap, port->second.netdev));
  ASSIGN_OR_RETURN(const auto gid, parse_gid_index(params.gid_index));
  ASSIGN_OR_RETURN(const bool without_stamps, parse_without_stamps(params.verbs_without));
  const VerbsPortInfo& info = port->second;
  ASSIGN_OR_RETURN(auto nic, VerbsNic::open({.device = info.device,
                                             .port = info.port,
                                             .gid_index = gid,
                                             .flows = params.max_flows,
                                             .queue_pairs = params.max_flows * 2,
                                             .regions = params.max_regions,
                                             .paths = params.paths,
                                             .chunk = params.chunk,
                                             .traffic_class = params.tc,
                                             .control_traffic_class = params.control_tc,
                                             .pkey_index = params.pkey,
                                             .service_level = params.sl,
                                             .line_rate = params.line_rate,
                                             .without_stamps = without_stamps,
                                             .silence_limit = params.timeout * 6 / 10,
                                             .address = address,
                                             .log = log},
                                            clock_now()));
  RETURN_IF_ERROR(check_locking(nic->nic()));
  return OpenedNic{.name = candidate.name(),
                   .device = info.device,
                   .pci_path = info.pci_path,
                   .guid = info.guid,
                   .speed = params.line_rate.bps() != 0 ? params.line_rate : info.rate,
                   .port = std::move(nic)};
}

}  // namespace pacecar
