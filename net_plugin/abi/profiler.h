// The binary interface between NCCL and a profiler plugin, written from its published layout: one
// symbol, ncclProfiler_vN, per version: 1 (NCCL 2.23), 2 (2.24), 3 (2.26), 4 (2.27), 5 (2.28),
// 6 (2.29), 7 (2.31). NCCL takes the newest.
//
// Types carry our names, but sizes, offsets, order and values are NCCL's; static_assert holds them.
// The members of the tables keep NCCL's names. What changed: 2 brought names in place of numbers,
// 3 kernels and events of the net plugin, 4 the communicator's identity at init, 5 its number as
// the first argument and calls of the application, 6 copy engines, 7 users' tags and phases of
// kernels. A context is one communicator's; a handle is one event's, NULL if it is not recorded.
//
// Strings are NCCL's, and valid during the call only. Units: counts in elements, sizes in bytes,
// GPU times in nanoseconds of the GPU's global timer.
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
constexpr int kProfileKernelChannel = 1 << 6;  // from version 3
constexpr int kProfileNetPlugin = 1 << 7;      // from version 3

enum class ProfileState : int {  // ncclProfilerEventState_t; those that we use
  kSendTransmitted = 2,          // of proxy operations, before version 4
  kReceiveReceived = 5,
  kSendGpuWait = 8,  // of proxy steps
  kSendWait = 9,
  kReceiveWait = 10,
  kReceiveFlushWait = 11,
  kReceiveGpuWait = 12,
  kSendPeerWait = 20,  // from version 4
};

// What the net plugin does to an event of its own, by the callback of its init.
enum class NetEvent : int { kStart = 0, kStop = 1, kUpdate = 2, kUpdateAndStop = 3 };

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

struct NetPluginDescription {
  int64_t id;
  void* data;
};

struct KernelChannelV3 {
  uint8_t channel;
};

struct KernelChannelV4 {
  uint8_t channel;
  uint64_t gpu_time;
};

struct CollectiveV1 {
  const char* name;
  uint64_t comm_hash;
  uint64_t sequence;
  uint8_t function;  // ncclFunc_t
  const void* send_buffer;
  void* receive_buffer;
  size_t count;
  int root;
  uint8_t datatype;  // ncclDataType_t
  uint32_t reduction;
  size_t traffic_bytes;
  uint8_t most_channels;
  uint8_t warps;
  uint8_t algorithm;
  uint8_t protocol;
  int is_collnet;
  int is_nvls;
};

// `Name`: NCCL's number of a function or type; from version 2 on its name.
template <typename Name>
struct PointToPointV1V2 {
  const char* name;
  uint64_t comm_hash;
  Name function;
  void* buffer;
  Name datatype;
  size_t count;
  int peer;
};
using PointToPointV1 = PointToPointV1V2<uint8_t>;
using PointToPointV2 = PointToPointV1V2<const char*>;

struct CollectiveV2 {
  const char* name;
  uint64_t comm_hash;
  uint64_t sequence;
  const char* function;
  const void* send_buffer;
  void* receive_buffer;
  size_t count;
  int root;
  const char* datatype;
  size_t traffic_bytes;
  uint8_t most_channels;
  uint8_t warps;
  const char* algorithm;
  const char* protocol;
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

// Before version 4 events name their communicator; from version 5 on, the group of calls.
struct NamedCommunicator {
  const char* name;
  uint64_t comm_hash;
};
struct CollectiveV3 : NamedCommunicator, CollectiveV4 {};
struct CollectiveV5 : CollectiveV4 {
  void* parent_group;
};
struct PointToPointV5 : PointToPointV4 {
  void* parent_group;
};

// A descriptor: its type says which member counts. Versions 1 and 2 have no kernel channels and no
// events of net plugins. Versions 6 and 7 describe more kinds of events, for bits of the mask that
// we never set, and add members behind those that we read.
template <typename Type, typename Collective, typename PointToPoint, typename KernelChannel>
struct ProfileEvent {
  Type type;
  void* parent;
  int rank;
  union {
    Collective collective;
    PointToPoint point_to_point;
    ProxyOpDescription proxy_op;
    ProxyStepDescription proxy_step;
    KernelChannel kernel_channel;
    NetPluginDescription net_plugin;
  };
};
using ProfileEventV1 = ProfileEvent<uint8_t, CollectiveV1, PointToPointV1, KernelChannelV3>;
using ProfileEventV2 = ProfileEvent<uint8_t, CollectiveV2, PointToPointV2, KernelChannelV3>;
using ProfileEventV3 = ProfileEvent<uint8_t, CollectiveV3, PointToPointV2, KernelChannelV3>;
using ProfileEventV4 = ProfileEvent<uint8_t, CollectiveV4, PointToPointV4, KernelChannelV4>;
using ProfileEventV5 = ProfileEvent<uint64_t, CollectiveV5, PointToPointV5, KernelChannelV4>;
using ProfileEventV6 = ProfileEventV5;  // and version 7, as far as we read it

// What comes with a change of state, as far as we use it; may be absent.
union ProfileStateArgumentsV1 {  // versions 1 to 3
  struct {
    size_t bytes;
    int steps;
  } proxy_op;
};
union ProfileStateArgumentsV4 {  // from version 4
  struct {
    size_t bytes;
  } proxy_step;
  struct {
    uint64_t gpu_time;
  } kernel_channel;
};

static_assert(sizeof(ProfileEventV1) == 120 && sizeof(ProfileEventV2) == 128);
static_assert(sizeof(ProfileEventV3) == 120 && sizeof(ProfileEventV4) == 104);
static_assert(sizeof(ProfileEventV5) == 112);
static_assert(offsetof(ProfileEventV1, parent) == 8 && offsetof(ProfileEventV1, rank) == 16);
static_assert(offsetof(ProfileEventV1, collective) == 24);
static_assert(offsetof(ProfileEventV4, parent) == 8 && offsetof(ProfileEventV4, collective) == 24);
static_assert(offsetof(CollectiveV1, datatype) == 60 && offsetof(CollectiveV1, is_nvls) == 88);
static_assert(offsetof(CollectiveV2, datatype) == 64 && offsetof(CollectiveV2, protocol) == 96);
static_assert(sizeof(CollectiveV3) == 96);
static_assert(offsetof(CollectiveV4, datatype) == 48 && offsetof(CollectiveV4, protocol) == 72);
static_assert(sizeof(CollectiveV5) == 88 && sizeof(PointToPointV1) == 56);
static_assert(offsetof(PointToPointV2, peer) == 48 && offsetof(PointToPointV4, channels) == 36);
static_assert(sizeof(PointToPointV5) == 48);
static_assert(sizeof(ProxyOpDescription) == 24 && offsetof(ProxyOpDescription, is_send) == 20);
static_assert(offsetof(KernelChannelV4, gpu_time) == 8);
static_assert(sizeof(ProfileStateArgumentsV1) == 16 && sizeof(ProfileStateArgumentsV4) == 8);

constexpr int kOldestProfiler = 1;
constexpr int kNewestProfiler = 7;

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
using ProfilerV7 = ProfilerV6;

static_assert(sizeof(ProfilerV1) == 48);
static_assert(offsetof(ProfilerV1, startEvent) == 16 && offsetof(ProfilerV1, finalize) == 40);

}  // namespace pacecar::nccl
