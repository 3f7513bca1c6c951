// A FramePort on a DPDK device: shared memory with another process (net_memif, of which it is the
// server), or a NIC. The device is polled, and a frame's time of arrival is that of the poll. Part
// of a module that is loaded when needed (transport/io/dpdk/module.h).
#pragma once

#include <memory>
#include <string>

#include "bench/switch/frame_port.h"
#include "transport/base/log.h"
#include "transport/base/result.h"

namespace pacecar {

inline constexpr const char* kDpdkFramesModule = "libpacecar-switch-dpdk.so";

// `device` and `arguments` are those of transport/io/dpdk: "net_memif0", "id=0,socket=/run/x".
// Errors: kInvalidArgument for net_memif as a client, and those of DpdkPort.
Result<std::unique_ptr<FramePort>> open_dpdk_frames(const std::string& device,
                                                    const std::string& arguments,
                                                    const LogSink& log);

}  // namespace pacecar
