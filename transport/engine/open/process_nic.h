// Opens the software NIC of a process that shares its address with other processes. It uses
// standard RoCE v2, so that it interoperates with the NICs of other processes, hosts and vendors.
#pragma once

#include "transport/base/params.h"
#include "transport/base/result.h"
#include "transport/engine/open/open_nic.h"
#include "transport/io/udp/interfaces.h"

namespace pacecar {

// Takes the first free slot of the interface's address (roce::port_of_slot), and ignores
// PACECAR_WIRE. Errors: kUnavailable (all slots are taken), kNotFound (no address),
// kInvalidArgument (PACECAR_SECURITY=encrypt), kSystem.
Result<OpenedNic> open_process_nic(const InterfaceInfo& interface, const Params& params,
                                   const LogSink& log);

}  // namespace pacecar
