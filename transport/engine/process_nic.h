// The software NIC of one of several processes at the same address. It uses standard RoCE v2, with
// the NICs of other processes, hosts and vendors.
#pragma once

#include "transport/base/params.h"
#include "transport/base/result.h"
#include "transport/engine/open_nic.h"
#include "transport/io/udp/interfaces.h"

namespace pacecar {

// Takes the first free slot of the interface's address (roce::port_of_slot), whatever
// PACECAR_WIRE says. Errors: kUnavailable (all are taken), kNotFound (no address),
// kInvalidArgument (PACECAR_SECURITY=encrypt), kSystem.
Result<OpenedNic> open_process_nic(const InterfaceInfo& interface, const Params& params,
                                   const LogSink& log);

}  // namespace pacecar
