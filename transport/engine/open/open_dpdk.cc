#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/base/return_if_error.h"
#include "transport/engine/clock.h"
#include "transport/engine/open/back_ends.h"
#include "transport/engine/open/open_io.h"
#include "transport/engine/open/open_kinds.h"
#include "transport/engine/soft_port.h"
#include "transport/io/dpdk/dpdk_io.h"
#include "transport/io/dpdk/module.h"
#include "transport/io/udp/interfaces.h"

namespace pacecar {
namespace {

constexpr const char* kModule = "libpacecar-dpdk.so";

// Where the bootstrap listens: the kernel's address of the named interface. Without a name: of the
// device's own, if the kernel has it; else of the first that leaves the host; else of the loopback.
Result<Address> bootstrap_address(const DpdkDevice& device, const OpenedDpdk& opened) {
  std::vector<InterfaceInfo> interfaces;
  if (device.bootstrap.empty()) {
    ASSIGN_OR_RETURN(interfaces, list_interfaces());
    std::erase_if(interfaces, [](const InterfaceInfo& each) { return !each.up; });
  } else {
    ASSIGN_OR_RETURN(interfaces.emplace_back(), find_interface(device.bootstrap));
  }
  std::erase_if(interfaces, [](const InterfaceInfo& each) { return !preferred_address(each); });
  const auto best = std::ranges::min_element(interfaces, {}, [&](const InterfaceInfo& each) {
    return each.name == opened.interface ? 0 : each.loopback ? 2 : 1;
  });
  if (best != interfaces.end()) return *preferred_address(*best);
  return fail(ErrorCode::kNotFound,
              fmt::format("no interface of the kernel has an address by which peers could set up "
                          "connections of '{}': name one that has, with bootstrap=INTERFACE",
                          device.name));
}

}  // namespace

Result<void> find_dpdk() {
  RETURN_IF_ERROR(load_dpdk_module(kModule));
  return {};
}

Result<OpenedNic> open_dpdk_nic(const NicCandidate& candidate, const Params& params,
                                const LogSink& log) {
  ASSIGN_OR_RETURN(const auto device, parse_dpdk_device(candidate.device, candidate.arguments));
  ASSIGN_OR_RETURN(const auto open, load_dpdk_function<decltype(open_dpdk)>(kModule));
  ASSIGN_OR_RETURN(auto opened, open({.device = device,
                                      .eal_arguments = params.dpdk_eal,
                                      .paths = params.paths,
                                      .data_tc = static_cast<uint8_t>(params.tc),
                                      .control_tc = static_cast<uint8_t>(params.control_tc),
                                      // Standard RoCE v2 has a CRC of its own.
                                      .udp_checksums = params.wire == WireMode::kExtended,
                                      .standard_port = params.wire != WireMode::kExtended},
                                     log));
  ASSIGN_OR_RETURN(const auto bootstrap, bootstrap_address(device, opened));
  const Rate speed = opened.io->caps().line_rate;
  ASSIGN_OR_RETURN(auto io, decorate_io(params, std::move(opened.io), log));
  return OpenedNic{.name = candidate.name(),
                   .device = device.name,
                   .pci_path = device.is_pci() ? pci_device_path(device.name) : "",
                   .guid = guid_from_mac(opened.mac),
                   .speed = params.line_rate.bps() != 0 ? params.line_rate : speed,
                   .port = make_soft_port(params, std::move(io), clock_now(), bootstrap)};
}

}  // namespace pacecar
