// A FramePort on a DPDK device, which it polls: shared memory with another process (net_memif, of
// which it is the server), or a NIC. Frames arrive when they are looked for: there are no stamps.
// In a module (transport/io/dpdk/module.h).
#pragma once

#include <memory>
#include <string>

#include "bench/switch/frame_port.h"
#include "transport/base/log.h"
#include "transport/base/result.h"

namespace pacecar {

inline constexpr const char* kDpdkFramesModule = "libpacecar-switch-dpdk.so";

// `device` and `arguments` as in transport/io/dpdk: "net_memif0", "id=0,socket=/run/x".
// Errors: kInvalidArgument for net_memif as a client, else those of DpdkPort.
Result<std::unique_ptr<FramePort>> open_dpdk_frames(const std::string& device,
                                                    const std::string& arguments,
                                                    const LogSink& log);

}  // namespace pacecar
