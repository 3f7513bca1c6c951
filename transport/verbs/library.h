// libibverbs, loaded at run time: a host without it only lacks RDMA NICs. Its functions are called
// by their own names, which this library defines; the data path uses the device's own table in any
// case.
//
// Thread rule: any.
#pragma once

#include "transport/base/result.h"

namespace pacecar {

// Once per process, before any of its functions; it stays loaded. A replacement (LD_PRELOAD) is
// used, as by programs that are linked with the library. Errors: kUnavailable.
Result<void> load_verbs_library();

}  // namespace pacecar
