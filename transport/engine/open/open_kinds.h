// Opens the kinds of NIC that are not on sockets. A build without libfabric or libibverbs has none
// of that kind.
#pragma once

#include <string>
#include <vector>

#include "transport/base/log.h"
#include "transport/base/params.h"
#include "transport/engine/open/nic_list.h"
#include "transport/engine/open/open_nic.h"

namespace pacecar {

// The path below /sys/devices of a PCI address such as "0000:3b:00.0"; empty: no such device.
std::string pci_device_path(const std::string& address);

// A software NIC on a DPDK device. Errors: kUnavailable without DPDK, and as open_dpdk().
Result<OpenedNic> open_dpdk_nic(const NicCandidate& candidate, const Params& params,
                                const LogSink& log);

// Errors: kUnavailable (no libfabric), kNotFound (no such provider or domain), kInvalidArgument
// (the provider lacks something), and the provider's errors.
Result<OpenedNic> open_ofi_nic(const NicCandidate& candidate, const Params& params,
                               const LogSink& log);

// This machine's RDMA NICs; without libibverbs the kernel's devices, with that lack as their flaw.
std::vector<NicCandidate> list_verbs_nics();

// Errors: kNotFound, and the errors of VerbsNic::open.
Result<OpenedNic> open_verbs_nic(const NicCandidate& candidate, const Params& params,
                                 const LogSink& log);

}  // namespace pacecar
