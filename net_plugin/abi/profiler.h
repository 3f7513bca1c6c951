// The tables of functions by which NCCL calls a profiler plugin: one symbol, ncclProfiler_vN, per
// version: 1 (NCCL 2.23), 2 (2.24), 3 (2.26), 4 (2.27), 5 (2.28), 6 (2.29). NCCL takes the newest.
//
// The members keep NCCL's names. What changed: 2 brought names in place of numbers, 3 kernels and
// events of the net plugin, 4 the communicator's identity at init, 5 its number as the first
// argument and calls of the application, 6 copy engines. A context is one communicator's; a handle
// is one event's, NULL if it is not recorded.
#pragma once

#include "net_plugin/abi/profiler_events.h"
#include "net_plugin/abi/types.h"

namespace pacecar::nccl {

constexpr int kOldestProfiler = 1;
constexpr int kNewestProfiler = 6;

template <typename Init, typename Event, typename StateArguments>
struct Profiler {
  const char* name;
  Init init;
  NcclResult (*startEvent)(void* context, void** handle, Event* event);
  NcclResult (*stopEvent)(void* handle);
  NcclResult (*recordEventState)(void* handle, ProfileState state, StateArguments* arguments);
  NcclResult (*finalize)(void* context);
};
using ProfilerInitV1 = NcclResult (*)(void** context, int* activation_mask);
using ProfilerInitV4 = NcclResult (*)(void** context, int* activation_mask, const char* comm_name,
                                      uint64_t comm_hash, int nodes, int ranks, int rank,
                                      Logger logger);
using ProfilerInitV5 = NcclResult (*)(void** context, uint64_t comm_id, int* activation_mask,
                                      const char* comm_name, int nodes, int ranks, int rank,
                                      Logger logger);
using ProfilerV1 = Profiler<ProfilerInitV1, ProfileEventV1, ProfileStateArgumentsV1>;
using ProfilerV2 = Profiler<ProfilerInitV1, ProfileEventV2, ProfileStateArgumentsV1>;
using ProfilerV3 = Profiler<ProfilerInitV1, ProfileEventV3, ProfileStateArgumentsV1>;
using ProfilerV4 = Profiler<ProfilerInitV4, ProfileEventV4, ProfileStateArgumentsV4>;
using ProfilerV5 = Profiler<ProfilerInitV5, ProfileEventV5, ProfileStateArgumentsV4>;
using ProfilerV6 = ProfilerV5;

static_assert(sizeof(ProfilerV1) == 48);
static_assert(offsetof(ProfilerV1, startEvent) == 16 && offsetof(ProfilerV1, finalize) == 40);

}  // namespace pacecar::nccl
