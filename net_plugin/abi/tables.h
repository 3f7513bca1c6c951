// The tables of functions by which NCCL calls a plugin: one symbol, ncclNetPlugin_vN, per version.
//
// The members keep NCCL's names: they are what people look for. What changed: 7 brought device
// handles, 8 large registrations, 9 large messages and virtual devices, 10 traffic classes and
// profiler handles, 11 a context per communicator, 12 other properties.
#pragma once

#include "net_plugin/abi/properties.h"
#include "net_plugin/abi/types.h"

namespace pacecar::nccl {

struct NetV6 {
  const char* name;
  NcclResult (*init)(Logger logger);
  NcclResult (*devices)(int* count);
  NcclResult (*getProperties)(int device, NetPropertiesV6* properties);
  NcclResult (*listen)(int device, void* handle, void** listen_comm);
  NcclResult (*connect)(int device, void* handle, void** send_comm);
  NcclResult (*accept)(void* listen_comm, void** receive_comm);
  NcclResult (*regMr)(void* comm, void* data, int size, int type, void** memory);
  NcclResult (*regMrDmaBuf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                            void** memory);
  NcclResult (*deregMr)(void* comm, void* memory);
  NcclResult (*isend)(void* send_comm, void* data, int size, int tag, void* memory, void** request);
  NcclResult (*irecv)(void* receive_comm, int count, void** data, int* sizes, int* tags,
                      void** memories, void** request);
  NcclResult (*iflush)(void* receive_comm, int count, void** data, int* sizes, void** memories,
                       void** request);
  NcclResult (*test)(void* request, int* done, int* sizes);
  NcclResult (*closeSend)(void* send_comm);
  NcclResult (*closeRecv)(void* receive_comm);
  NcclResult (*closeListen)(void* listen_comm);
};

template <typename Properties, typename RegistrationSize>
struct NetV7V8 {
  const char* name;
  NcclResult (*init)(Logger logger);
  NcclResult (*devices)(int* count);
  NcclResult (*getProperties)(int device, Properties* properties);
  NcclResult (*listen)(int device, void* handle, void** listen_comm);
  NcclResult (*connect)(int device, void* handle, void** send_comm, DeviceHandle** device_handle);
  NcclResult (*accept)(void* listen_comm, void** receive_comm, DeviceHandle** device_handle);
  NcclResult (*regMr)(void* comm, void* data, RegistrationSize size, int type, void** memory);
  NcclResult (*regMrDmaBuf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                            void** memory);
  NcclResult (*deregMr)(void* comm, void* memory);
  NcclResult (*isend)(void* send_comm, void* data, int size, int tag, void* memory, void** request);
  NcclResult (*irecv)(void* receive_comm, int count, void** data, int* sizes, int* tags,
                      void** memories, void** request);
  NcclResult (*iflush)(void* receive_comm, int count, void** data, int* sizes, void** memories,
                       void** request);
  NcclResult (*test)(void* request, int* done, int* sizes);
  NcclResult (*closeSend)(void* send_comm);
  NcclResult (*closeRecv)(void* receive_comm);
  NcclResult (*closeListen)(void* listen_comm);
  NcclResult (*getDeviceMr)(void* comm, void* memory, void** device_memory);
  NcclResult (*irecvConsumed)(void* receive_comm, int count, void* request);
};
using NetV7 = NetV7V8<NetPropertiesV7, int>;
using NetV8 = NetV7V8<NetPropertiesV8, size_t>;

struct NetV9 {
  const char* name;
  NcclResult (*init)(Logger logger);
  NcclResult (*devices)(int* count);
  NcclResult (*getProperties)(int device, NetPropertiesV9* properties);
  NcclResult (*listen)(int device, void* handle, void** listen_comm);
  NcclResult (*connect)(int device, void* handle, void** send_comm, DeviceHandle** device_handle);
  NcclResult (*accept)(void* listen_comm, void** receive_comm, DeviceHandle** device_handle);
  NcclResult (*regMr)(void* comm, void* data, size_t size, int type, void** memory);
  NcclResult (*regMrDmaBuf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                            void** memory);
  NcclResult (*deregMr)(void* comm, void* memory);
  NcclResult (*isend)(void* send_comm, void* data, size_t size, int tag, void* memory,
                      void** request);
  NcclResult (*irecv)(void* receive_comm, int count, void** data, size_t* sizes, int* tags,
                      void** memories, void** request);
  NcclResult (*iflush)(void* receive_comm, int count, void** data, int* sizes, void** memories,
                       void** request);
  NcclResult (*test)(void* request, int* done, int* sizes);
  NcclResult (*closeSend)(void* send_comm);
  NcclResult (*closeRecv)(void* receive_comm);
  NcclResult (*closeListen)(void* listen_comm);
  NcclResult (*getDeviceMr)(void* comm, void* memory, void** device_memory);
  NcclResult (*irecvConsumed)(void* receive_comm, int count, void* request);
  NcclResult (*makeVDevice)(int* device, VirtualDeviceV9* properties);
};

struct NetV10 {
  const char* name;
  NcclResult (*init)(Logger logger, ProfilerCallback profiler);
  NcclResult (*devices)(int* count);
  NcclResult (*getProperties)(int device, NetPropertiesV9* properties);
  NcclResult (*listen)(int device, void* handle, void** listen_comm);
  NcclResult (*connect)(int device, CommConfig* config, void* handle, void** send_comm,
                        DeviceHandle** device_handle);
  NcclResult (*accept)(void* listen_comm, void** receive_comm, DeviceHandle** device_handle);
  NcclResult (*regMr)(void* comm, void* data, size_t size, int type, void** memory);
  NcclResult (*regMrDmaBuf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                            void** memory);
  NcclResult (*deregMr)(void* comm, void* memory);
  NcclResult (*isend)(void* send_comm, void* data, size_t size, int tag, void* memory,
                      void* profiler_handle, void** request);
  NcclResult (*irecv)(void* receive_comm, int count, void** data, size_t* sizes, int* tags,
                      void** memories, void** profiler_handles, void** request);
  NcclResult (*iflush)(void* receive_comm, int count, void** data, int* sizes, void** memories,
                       void** request);
  NcclResult (*test)(void* request, int* done, int* sizes);
  NcclResult (*closeSend)(void* send_comm);
  NcclResult (*closeRecv)(void* receive_comm);
  NcclResult (*closeListen)(void* listen_comm);
  NcclResult (*getDeviceMr)(void* comm, void* memory, void** device_memory);
  NcclResult (*irecvConsumed)(void* receive_comm, int count, void* request);
  NcclResult (*makeVDevice)(int* device, VirtualDeviceV9* properties);
};

template <typename Properties, typename VirtualDevice>
struct NetV11V12 {
  const char* name;
  NcclResult (*init)(void** context, uint64_t comm_id, CommConfig* config, Logger logger,
                     ProfilerCallback profiler);
  NcclResult (*devices)(int* count);
  NcclResult (*getProperties)(int device, Properties* properties);
  NcclResult (*listen)(void* context, int device, void* handle, void** listen_comm);
  NcclResult (*connect)(void* context, int device, void* handle, void** send_comm,
                        DeviceHandle** device_handle);
  NcclResult (*accept)(void* listen_comm, void** receive_comm, DeviceHandle** device_handle);
  NcclResult (*regMr)(void* comm, void* data, size_t size, int type, void** memory);
  NcclResult (*regMrDmaBuf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                            void** memory);
  NcclResult (*deregMr)(void* comm, void* memory);
  NcclResult (*isend)(void* send_comm, void* data, size_t size, int tag, void* memory,
                      void* profiler_handle, void** request);
  NcclResult (*irecv)(void* receive_comm, int count, void** data, size_t* sizes, int* tags,
                      void** memories, void** profiler_handles, void** request);
  NcclResult (*iflush)(void* receive_comm, int count, void** data, int* sizes, void** memories,
                       void** request);
  NcclResult (*test)(void* request, int* done, int* sizes);
  NcclResult (*closeSend)(void* send_comm);
  NcclResult (*closeRecv)(void* receive_comm);
  NcclResult (*closeListen)(void* listen_comm);
  NcclResult (*getDeviceMr)(void* comm, void* memory, void** device_memory);
  NcclResult (*irecvConsumed)(void* receive_comm, int count, void* request);
  NcclResult (*makeVDevice)(int* device, VirtualDevice* properties);
  NcclResult (*finalize)(void* context);
  NcclResult (*setNetAttr)(void* context, NetAttributes* attributes);
};
using NetV11 = NetV11V12<NetPropertiesV11, VirtualDeviceV9>;
using NetV12 = NetV11V12<NetPropertiesV12, VirtualDeviceV12>;

static_assert(sizeof(NetV6) == 136);
static_assert(sizeof(NetV7) == 152 && sizeof(NetV8) == 152);
static_assert(sizeof(NetV9) == 160 && sizeof(NetV10) == 160);
static_assert(sizeof(NetV11) == 176 && sizeof(NetV12) == 176);
static_assert(offsetof(NetV6, closeListen) == 128);
static_assert(offsetof(NetV7, irecvConsumed) == 144);
static_assert(offsetof(NetV9, makeVDevice) == 152);
static_assert(offsetof(NetV10, isend) == 80);
static_assert(offsetof(NetV11, init) == 8);
static_assert(offsetof(NetV11, listen) == 32);
static_assert(offsetof(NetV11, isend) == 80);
static_assert(offsetof(NetV11, test) == 104);
static_assert(offsetof(NetV11, getDeviceMr) == 136);
static_assert(offsetof(NetV11, finalize) == 160);
static_assert(offsetof(NetV11, setNetAttr) == 168);

}  // namespace pacecar::nccl
