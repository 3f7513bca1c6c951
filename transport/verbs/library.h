// libibverbs, found at run time: a host without it has no RDMA NICs, and lacks nothing else. Its
// functions are called by their own names, which this library defines; the data path goes through
// the device's own table in any case.
//
// Thread rule: any.
#pragma once

#include "transport/base/result.h"

namespace pacecar {

// Once per process, before any of its functions; it stays loaded. What a program was given in the
// library's place (LD_PRELOAD) counts, as it does where programs are linked with it.
// Errors: kUnavailable.
Result<void> load_verbs_library();

}  // namespace pacecar
