// libibverbs, loaded at run time: a host without it lacks RDMA NICs only. We define its functions
// under their own names, and call the loaded ones. The data path uses the device's own table of
// functions in any case. Thread rule: any.
#pragma once

#include "transport/base/result.h"

namespace pacecar {

// Call it before any function of the library, which stays loaded. A replacement (LD_PRELOAD) is
// used, as in programs that are linked with the library. Errors: kUnavailable.
Result<void> load_verbs_library();

}  // namespace pacecar
