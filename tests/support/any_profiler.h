// The host's side of the profiler's interface: a plugin's table of any version as one of version 6,
// which is what NCCL makes of old plugins.
//
// Thread rule: as the plugin's own; init before all else.
#pragma once

#include "net_plugin/abi/profiler.h"

namespace pacecar::nccl {

// The table of this version in a loaded library, which outlives it; its name is nullptr when there
// is none.
ProfilerV6 find_profiler(void* library, int version);

}  // namespace pacecar::nccl
