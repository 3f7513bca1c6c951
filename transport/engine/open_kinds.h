// Opening each kind of NIC but those on sockets. In a build without libfabric or libibverbs there
// are none of that kind.
#pragma once

#include <vector>

#include "transport/base/log.h"
#include "transport/base/params.h"
#include "transport/engine/nic_list.h"
#include "transport/engine/open_nic.h"

namespace pacecar {

// A software NIC on a DPDK device. Errors: kUnavailable without DPDK, and those of open_dpdk().
Result<OpenedNic> open_dpdk_nic(const NicCandidate& candidate, const Params& params,
                                const LogSink& log);

// Errors: kUnavailable (no libfabric), kNotFound (no such provider or domain), kInvalidArgument (it
// lacks something), and the provider's errors.
Result<OpenedNic> open_ofi_nic(const NicCandidate& candidate, const Params& params,
                               const LogSink& log);

// RDMA NICs among the NICs of this machine; without libibverbs the kernel's devices, with what is
// missing as their flaw.
std::vector<NicCandidate> list_verbs_nics();

// Errors: kNotFound, and those of VerbsNic::open.
Result<OpenedNic> open_verbs_nic(const NicCandidate& candidate, const Params& params,
                                 const LogSink& log);

}  // namespace pacecar
