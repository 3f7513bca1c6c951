// The tables of functions by which NCCL calls a plugin: one symbol, ncclNetPlugin_vN, per version.
// The members keep NCCL's names: they are what people look for. What changed: 7 brought device
// handles, 8 large registrations, 9 large messages and virtual devices, 10 traffic classes and
// profiler handles, 11 a context per communicator, 12 other properties.
#pragma once

#include "net_plugin/abi/properties.h"
#include "net_plugin/abi/types.h"

namespace pacecar::nccl {

// The functions that have changed, by the version that brought them.
using InitV6 = NcclResult (*)(Logger logger);
using InitV10 = NcclResult (*)(Logger logger, ProfilerCallback profiler);
using InitV11 = NcclResult (*)(void** context, uint64_t comm_id, CommConfig* config, Logger logger,
                               ProfilerCallback profiler);
using ListenV6 = NcclResult (*)(int device, void* handle, void** listen_comm);
using ListenV11 = NcclResult (*)(void* context, int device, void* handle, void** listen_comm);
using ConnectV6 = NcclResult (*)(int device, void* handle, void** send_comm);
using ConnectV7 = NcclResult (*)(int device, void* handle, void** send_comm,
                                 DeviceHandle** device_handle);
using ConnectV10 = NcclResult (*)(int device, CommConfig* config, void* handle, void** send_comm,
                                  DeviceHandle** device_handle);
using ConnectV11 = NcclResult (*)(void* context, int device, void* handle, void** send_comm,
                                  DeviceHandle** device_handle);
using AcceptV6 = NcclResult (*)(void* listen_comm, void** receive_comm);
using AcceptV7 = NcclResult (*)(void* listen_comm, void** receive_comm,
                                DeviceHandle** device_handle);
using RegMrV6 = NcclResult (*)(void* comm, void* data, int size, int type, void** memory);
using RegMrV8 = NcclResult (*)(void* comm, void* data, size_t size, int type, void** memory);
using IsendV6 = NcclResult (*)(void* send_comm, void* data, int size, int tag, void* memory,
                               void** request);
using IsendV9 = NcclResult (*)(void* send_comm, void* data, size_t size, int tag, void* memory,
                               void** request);
using IsendV10 = NcclResult (*)(void* send_comm, void* data, size_t size, int tag, void* memory,
                                void* profiler_handle, void** request);
using IrecvV6 = NcclResult (*)(void* receive_comm, int count, void** data, int* sizes, int* tags,
                               void** memories, void** request);
using IrecvV9 = NcclResult (*)(void* receive_comm, int count, void** data, size_t* sizes, int* tags,
                               void** memories, void** request);
using IrecvV10 = NcclResult (*)(void* receive_comm, int count, void** data, size_t* sizes,
                                int* tags, void** memories, void** profiler_handles,
                                void** request);

template <typename Properties, typename Init, typename Listen, typename Connect, typename Accept,
          typename RegMr, typename Isend, typename Irecv>
struct NetFunctions {
  const char* name;
  Init init;
  NcclResult (*devices)(int* count);
  NcclResult (*getProperties)(int device, Properties* properties);
  Listen listen;
  Connect connect;
  Accept accept;
  RegMr regMr;
  NcclResult (*regMrDmaBuf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                            void** memory);
  NcclResult (*deregMr)(void* comm, void* memory);
  Isend isend;
  Irecv irecv;
  NcclResult (*iflush)(void* receive_comm, int count, void** data, int* sizes, void** memories,
                       void** request);
  NcclResult (*test)(void* request, int* done, int* sizes);
  NcclResult (*closeSend)(void* send_comm);
  NcclResult (*closeRecv)(void* receive_comm);
  NcclResult (*closeListen)(void* listen_comm);
};

struct DeviceFunctions {
  NcclResult (*getDeviceMr)(void* comm, void* memory, void** device_memory);
  NcclResult (*irecvConsumed)(void* receive_comm, int count, void* request);
};
template <typename VirtualDevice>
struct MakeVirtualDevice {
  NcclResult (*makeVDevice)(int* device, VirtualDevice* properties);
};
struct ContextFunctions {
  NcclResult (*finalize)(void* context);
  NcclResult (*setNetAttr)(void* context, NetAttributes* attributes);
};

using NetV6 =
    NetFunctions<NetPropertiesV6, InitV6, ListenV6, ConnectV6, AcceptV6, RegMrV6, IsendV6, IrecvV6>;
struct NetV7 : NetFunctions<NetPropertiesV7, InitV6, ListenV6, ConnectV7, AcceptV7, RegMrV6,
                            IsendV6, IrecvV6>,
               DeviceFunctions {};
struct NetV8 : NetFunctions<NetPropertiesV8, InitV6, ListenV6, ConnectV7, AcceptV7, RegMrV8,
                            IsendV6, IrecvV6>,
               DeviceFunctions {};
struct NetV9 : NetFunctions<NetPropertiesV9, InitV6, ListenV6, ConnectV7, AcceptV7, RegMrV8,
                            IsendV9, IrecvV9>,
               DeviceFunctions,
               MakeVirtualDevice<VirtualDeviceV9> {};
struct NetV10 : NetFunctions<NetPropertiesV9, InitV10, ListenV6, ConnectV10, AcceptV7, RegMrV8,
                             IsendV10, IrecvV10>,
                DeviceFunctions,
                MakeVirtualDevice<VirtualDeviceV9> {};
template <typename Properties, typename VirtualDevice>
struct NetV11V12 : NetFunctions<Properties, InitV11, ListenV11, ConnectV11, AcceptV7, RegMrV8,
                                IsendV10, IrecvV10>,
                   DeviceFunctions,
                   MakeVirtualDevice<VirtualDevice>,
                   ContextFunctions {};
using NetV11 = NetV11V12<NetPropertiesV11, VirtualDeviceV9>;
using NetV12 = NetV11V12<NetPropertiesV12, VirtualDeviceV12>;

static_assert(sizeof(NetV6) == 136);
static_assert(sizeof(NetV7) == 152 && sizeof(NetV8) == 152);
static_assert(sizeof(NetV9) == 160 && sizeof(NetV10) == 160);
static_assert(sizeof(NetV11) == 176 && sizeof(NetV12) == 176);
static_assert(offsetof(NetV6, init) == 8 && offsetof(NetV6, listen) == 32);
static_assert(offsetof(NetV6, isend) == 80 && offsetof(NetV6, test) == 104);
static_assert(offsetof(NetV6, closeListen) == 128);

}  // namespace pacecar::nccl
