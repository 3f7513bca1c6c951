// RDMA NICs among the NICs of this machine. In a build without libibverbs there are none.
#pragma once

#include <vector>

#include "transport/engine/open_nic.h"

namespace pacecar {

// Without libibverbs: the kernel's devices, with what is missing as their flaw.
std::vector<NicCandidate> list_verbs_nics();

// Errors: kNotFound, and those of VerbsNic::open.
Result<OpenedNic> open_verbs_nic(const NicCandidate& candidate, const Params& params,
                                 const LogSink& log);

}  // namespace pacecar
