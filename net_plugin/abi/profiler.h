// The tables of functions by which NCCL calls a profiler plugin: one symbol, ncclProfiler_vN, per
// version: 1 (NCCL 2.23), 2 (2.24), 3 (2.26), 4 (2.27), 5 (2.28), 6 (2.29). NCCL takes the newest.
//
// The members keep NCCL's names. What changed: 2 brought names in place of numbers, 3 kernels and
// events of the net plugin, 4 who a communicator is at init, 5 its number first and calls of the
// application, 6 copy engines. A context is one communicator's; a handle is one event's, NULL where
// it is of no interest.
#pragma once

#include "net_plugin/abi/profiler_events.h"
#include "net_plugin/abi/types.h"

namespace pacecar::nccl {

constexpr int kOldestProfiler = 1;
constexpr int kNewestProfiler = 6;

template <typename Event>
struct ProfilerV1V3 {
  const char* name;
  NcclResult (*init)(void** context, int* activation_mask);
  NcclResult (*startEvent)(void* context, void** handle, Event* event);
  NcclResult (*stopEvent)(void* handle);
  NcclResult (*recordEventState)(void* handle, ProfileState state,
                                 ProfileStateArgumentsV1* arguments);
  NcclResult (*finalize)(void* context);
};
using ProfilerV1 = ProfilerV1V3<ProfileEventV1>;
using ProfilerV2 = ProfilerV1V3<ProfileEventV2>;
using ProfilerV3 = ProfilerV1V3<ProfileEventV3>;

struct ProfilerV4 {
  const char* name;
  NcclResult (*init)(void** context, int* activation_mask, const char* comm_name,
                     uint64_t comm_hash, int nodes, int ranks, int rank, Logger logger);
  NcclResult (*startEvent)(void* context, void** handle, ProfileEventV4* event);
  NcclResult (*stopEvent)(void* handle);
  NcclResult (*recordEventState)(void* handle, ProfileState state,
                                 ProfileStateArgumentsV4* arguments);
  NcclResult (*finalize)(void* context);
};

template <typename Event>
struct ProfilerV5V6 {
  const char* name;
  NcclResult (*init)(void** context, uint64_t comm_id, int* activation_mask, const char* comm_name,
                     int nodes, int ranks, int rank, Logger logger);
  NcclResult (*startEvent)(void* context, void** handle, Event* event);
  NcclResult (*stopEvent)(void* handle);
  NcclResult (*recordEventState)(void* handle, ProfileState state,
                                 ProfileStateArgumentsV4* arguments);
  NcclResult (*finalize)(void* context);
};
using ProfilerV5 = ProfilerV5V6<ProfileEventV5>;
using ProfilerV6 = ProfilerV5V6<ProfileEventV6>;

static_assert(sizeof(ProfilerV1) == 48 && sizeof(ProfilerV4) == 48 && sizeof(ProfilerV6) == 48);
static_assert(offsetof(ProfilerV1, startEvent) == 16 && offsetof(ProfilerV1, finalize) == 40);
static_assert(offsetof(ProfilerV4, stopEvent) == 24 && offsetof(ProfilerV6, stopEvent) == 24);

}  // namespace pacecar::nccl
