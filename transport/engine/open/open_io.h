// The packet I/O of a NIC, with the decorators of PACECAR_FAULT and PACECAR_PCAP.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transport/base/log.h"
#include "transport/base/params.h"
#include "transport/base/result.h"
#include "transport/io/packet_io.h"
#include "transport/io/udp/interfaces.h"
#include "transport/io/udp/udp_io.h"

namespace pacecar {

enum class Sockets : uint8_t { kUdp, kRaw };

// The configuration of sockets on the interface by the parameters, without address and port.
SocketConfig socket_config(const Params& params, const InterfaceInfo& interface);

Result<std::unique_ptr<PacketIo>> decorate_io(const Params& params, std::unique_ptr<PacketIo> io,
                                              const LogSink& log);

Result<std::unique_ptr<PacketIo>> open_io(const Params& params, const InterfaceInfo& interface,
                                          Sockets sockets, const LogSink& log);

// One on UDP sockets for each core's SoftNic. Each records its packets in its own file.
Result<std::vector<std::unique_ptr<PacketIo>>> open_ios(const Params& params,
                                                        const InterfaceInfo& interface,
                                                        uint32_t engines, const LogSink& log);

}  // namespace pacecar
