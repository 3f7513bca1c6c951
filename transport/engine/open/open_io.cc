#include "transport/engine/open/open_io.h"

#include <fmt/format.h>

#include <atomic>
#include <string>
#include <utility>

#include "transport/base/return_if_error.h"
#include "transport/io/decorators/fault.h"
#include "transport/io/decorators/pcap.h"
#include "transport/io/raw/raw_io.h"
#include "transport/wire/extended.h"
#include "transport/wire/roce.h"

namespace pacecar {
namespace {

Result<std::unique_ptr<PacketIo>> open_sockets(const Params& params, const InterfaceInfo& interface,
                                               Sockets sockets) {
  SocketConfig config = socket_config(params, interface);
  if (sockets == Sockets::kRaw) return open_raw(config);
  if (params.wire == WireMode::kExtended) {
    config.beginning_bits = wire::kBeginning.bits;
    config.beginning = wire::kBeginning.value;
  } else {
    // UDP sockets hide the IPv4 fields that the ICRC covers, so IPv6 is preferred.
    config.address = preferred_ipv6_address(interface);
    config.port = roce::kUdpPort;
    config.without_checksum = true;
    if (!config.address) {
      return fail(
          ErrorCode::kNotFound,
          fmt::format("interface '{0}' has no IPv6 address, which standard RoCE v2 over UDP "
                      "sockets needs: use soft:raw:{0} for IPv4",
                      interface.name));
    }
  }
  return open_udp(config);
}

}  // namespace

SocketConfig socket_config(const Params& params, const InterfaceInfo& interface) {
  return {.interface = interface.name,
          .ports = params.ports,
          .paths = params.paths,
          .socket_buffer = params.socket_buffer,
          .data_tc = static_cast<uint8_t>(params.tc),
          .control_tc = static_cast<uint8_t>(params.control_tc)};
}

Result<std::unique_ptr<PacketIo>> open_io(const Params& params, const InterfaceInfo& interface,
                                          Sockets sockets, const LogSink& log) {
  auto io = open_sockets(params, interface, sockets);
  if (!io) return io;
  const Bytes got = (*io)->caps().receive_bytes;
  if (sockets == Sockets::kUdp && got < params.socket_buffer / 4) {
    log(LogLevel::kWarn,
        fmt::format("the receive buffer of {} has {} of {} KiB, which may cost most of the speed: "
                    "'sysctl -w net.core.rmem_max={}', or allow CAP_NET_ADMIN",
                    interface.name, got >> 10, params.socket_buffer >> 10, params.socket_buffer));
  }
  return decorate_io(params, std::move(*io), log);
}

Result<std::vector<std::unique_ptr<PacketIo>>> open_ios(const Params& params,
                                                        const InterfaceInfo& interface,
                                                        uint32_t engines, const LogSink& log) {
  std::vector<std::unique_ptr<PacketIo>> ios;
  for (uint32_t i = 0; i < engines; ++i) {
    ASSIGN_OR_RETURN(auto io, open_io(params, interface, Sockets::kUdp, log));
    ios.push_back(std::move(io));
  }
  return ios;
}

Result<std::unique_ptr<PacketIo>> decorate_io(const Params& params, std::unique_ptr<PacketIo> io,
                                              const LogSink& log) {
  // Faults first, so that the capture shows what the protocol sees.
  if (!params.fault.empty()) {
    ASSIGN_OR_RETURN(const auto fault, parse_fault(params.fault));
    io = inject_faults(std::move(io), fault);
  }
  if (!params.pcap.empty()) {
    static std::atomic<uint32_t> captures{0};  // of this process: of its NICs and their engines
    const uint32_t number = captures.fetch_add(1);
    const std::string further = number == 0 ? "" : fmt::format(".{}", number);
    return record_packets(std::move(io), params.pcap + further, log);
  }
  return io;
}

}  // namespace pacecar
