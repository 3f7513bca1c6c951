// Opening a software NIC on a DPDK device.
#pragma once

#include "transport/base/log.h"
#include "transport/base/params.h"
#include "transport/engine/nic_list.h"
#include "transport/engine/open_nic.h"

namespace pacecar {

// Errors: kUnavailable without DPDK, and those of open_dpdk().
Result<OpenedNic> open_dpdk_nic(const NicCandidate& candidate, const Params& params,
                                const LogSink& log);

}  // namespace pacecar
