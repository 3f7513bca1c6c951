// NICs on libfabric's providers. In a build without libfabric there are none.
#pragma once

#include "transport/engine/back_ends.h"
#include "transport/engine/open_nic.h"

namespace pacecar {

// Errors: kUnavailable (no libfabric), kNotFound (no such provider or domain), kInvalidArgument (it
// lacks something), and the provider's errors.
Result<OpenedNic> open_ofi_nic(const NicCandidate& candidate, const Params& params,
                               const LogSink& log);

}  // namespace pacecar
