#include <fmt/format.h>

#include <utility>

#include "transport/base/return_if_error.h"
#include "transport/engine/clock.h"
#include "transport/engine/open/open_io.h"
#include "transport/engine/open/open_nic.h"
#include "transport/engine/open/tags.h"
#include "transport/engine/soft_port.h"
#include "transport/io/udp/udp_io.h"
#include "transport/wire/address.h"
#include "transport/wire/roce.h"

namespace pacecar {

Result<OpenedNic> open_process_nic(const InterfaceInfo& interface, const Params& params,
                                   const LogSink& log) {
  RETURN_IF_ERROR(accept_without_tags("soft:udp:" + interface.name, "standard RDMA packets", false,
                                      params, log));
  if (!params.key_file.empty()) {
    log(LogLevel::kWarn,
        "PACECAR_KEY_FILE has no effect on verbs programs: their peers are not authenticated");
  }
  SocketConfig config = socket_config(params, interface);
  config.without_checksum = config.identifies = true;
  for (uint32_t slot = 0; slot < roce::kSlots; ++slot) {
    config.port = roce::port_of_slot(slot);
    auto io = open_udp(config);
    if (!io && io.error().code == ErrorCode::kUnavailable && interface.up) continue;
    if (!io) return tl::unexpected(std::move(io.error()));
    ASSIGN_OR_RETURN(auto decorated, decorate_io(params, std::move(*io), log));
    const bool host_only = is_loopback(decorated->local_address());
    OpenedNic nic{.name = "soft:udp:" + interface.name,
                  .device = interface.name,
                  .pci_path = interface.pci_path,
                  .guid = interface.guid,
                  .speed = params.line_rate.bps() != 0 ? params.line_rate : interface.speed,
                  .port = make_process_port(params, std::move(decorated), slot, clock_now()),
                  .host_only = host_only};
    share_link(nic, params, log);
    return nic;
  }
  return fail(ErrorCode::kUnavailable,
              fmt::format("{} processes use the address of {} already: give it another address, or "
                          "end one of them",
                          roce::kSlots, interface.name));
}

}  // namespace pacecar
