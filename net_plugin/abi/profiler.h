// The binary interface between NCCL and a profiler plugin, written from its published layout: one
// symbol, ncclProfiler_vN, per version: 4 (NCCL 2.27), 5 (2.28), 6 (2.29), 7 (2.31). NCCL takes the
// newest. Older versions (NCCL 2.23 to 2.26) are left out.
// Types carry our names, but NCCL's sizes, offsets, order and values; static_assert holds them. The
// members of the tables keep NCCL's names. What changed: 5 brought the communicator's number as the
// first argument and calls of the application, 6 copy engines, 7 users' tags and phases of kernels.
// A context belongs to one communicator; a handle to one event, NULL if it is not recorded.
// NCCL owns the strings; they are valid during the call only. Units: counts in elements, sizes in
// bytes, GPU times in nanoseconds of the GPU's global timer.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "net_plugin/abi/types.h"

namespace pacecar::nccl {

// Kinds of events: bits of the activation mask, one of them as a descriptor's type.
constexpr int kProfileGroup = 1 << 0;
constexpr int kProfileCollective = 1 << 1;
constexpr int kProfilePointToPoint = 1 << 2;
constexpr int kProfileProxyOp = 1 << 3;
constexpr int kProfileProxyStep = 1 << 4;
constexpr int kProfileKernelChannel = 1 << 6;

enum class ProfileState : int {  // ncclProfilerEventState_t, as far as we use it
  kSendGpuWait = 8,              // of proxy steps
  kSendWait = 9,
  kReceiveWait = 10,
  kReceiveFlushWait = 11,
  kReceiveGpuWait = 12,
  kSendPeerWait = 20,
};

struct ProxyOpDescription {
  pid_t pid;  // of the process that requested it; another one where a rank sends for others (PXN)
  uint8_t channel;
  int peer;
  int steps;
  int chunk_bytes;
  int is_send;
};

struct ProxyStepDescription {
  int step;
};

struct KernelChannelV4 {
  uint8_t channel;
  uint64_t gpu_time;
};

struct CollectiveV4 {
  uint64_t sequence;
  const char* function;
  const void* send_buffer;
  void* receive_buffer;
  size_t count;
  int root;
  const char* datatype;
  uint8_t channels;
  uint8_t warps;
  const char* algorithm;
  const char* protocol;
};

struct PointToPointV4 {
  const char* function;
  void* buffer;
  const char* datatype;
  size_t count;
  int peer;
  uint8_t channels;
};

struct CollectiveV5 : CollectiveV4 {
  void* parent_group;
};
struct PointToPointV5 : PointToPointV4 {
  void* parent_group;
};

// A descriptor: its type says which member counts. Versions 6 and 7 describe more kinds of events,
// for bits of the mask that we never set, and add members behind the members that we read.
template <typename Type, typename Collective, typename PointToPoint>
struct ProfileEvent {
  Type type;
  void* parent;
  int rank;
  union {
    Collective collective;
    PointToPoint point_to_point;
    ProxyOpDescription proxy_op;
    ProxyStepDescription proxy_step;
    KernelChannelV4 kernel_channel;
  };
};
using ProfileEventV4 = ProfileEvent<uint8_t, CollectiveV4, PointToPointV4>;
using ProfileEventV5 = ProfileEvent<uint64_t, CollectiveV5, PointToPointV5>;
using ProfileEventV6 = ProfileEventV5;  // and version 7, as far as we read it

// The arguments of a change of state, as far as we use them; may be absent.
union ProfileStateArgumentsV4 {
  struct {
    size_t bytes;
  } proxy_step;
  struct {
    uint64_t gpu_time;
  } kernel_channel;
};

static_assert(sizeof(ProfileEventV4) == 104 && sizeof(ProfileEventV5) == 112);
static_assert(offsetof(ProfileEventV4, parent) == 8 && offsetof(ProfileEventV4, rank) == 16);
static_assert(offsetof(ProfileEventV4, collective) == 24);
static_assert(offsetof(CollectiveV4, datatype) == 48 && offsetof(CollectiveV4, protocol) == 72);
static_assert(sizeof(CollectiveV5) == 88 && sizeof(PointToPointV5) == 48);
static_assert(offsetof(PointToPointV4, channels) == 36);
static_assert(sizeof(ProxyOpDescription) == 24 && offsetof(ProxyOpDescription, is_send) == 20);
static_assert(offsetof(KernelChannelV4, gpu_time) == 8);
static_assert(sizeof(ProfileStateArgumentsV4) == 8);

constexpr int kOldestProfiler = 4;
constexpr int kNewestProfiler = 7;

template <typename Init, typename Event>
struct Profiler {
  const char* name;
  Init init;
  NcclResult (*startEvent)(void* context, void** handle, Event* event);
  NcclResult (*stopEvent)(void* handle);
  NcclResult (*recordEventState)(void* handle, ProfileState state,
                                 ProfileStateArgumentsV4* arguments);
  NcclResult (*finalize)(void* context);
};
using ProfilerInitV4 = NcclResult (*)(void** context, int* activation_mask, const char* comm_name,
                                      uint64_t comm_hash, int nodes, int ranks, int rank,
                                      Logger logger);
using ProfilerInitV5 = NcclResult (*)(void** context, uint64_t comm_id, int* activation_mask,
                                      const char* comm_name, int nodes, int ranks, int rank,
                                      Logger logger);
using ProfilerV4 = Profiler<ProfilerInitV4, ProfileEventV4>;
using ProfilerV5 = Profiler<ProfilerInitV5, ProfileEventV5>;
using ProfilerV6 = ProfilerV5;
using ProfilerV7 = ProfilerV6;

static_assert(sizeof(ProfilerV4) == 48);
static_assert(offsetof(ProfilerV4, startEvent) == 16 && offsetof(ProfilerV4, finalize) == 40);

}  // namespace pacecar::nccl
