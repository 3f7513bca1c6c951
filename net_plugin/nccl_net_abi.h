// The binary interface between NCCL and a network plugin, written from its published layout.
//
// Types carry our names, but sizes, offsets, order and values are NCCL's; static_assert holds them.
// What changes from version to version carries the version in its name (V11 since NCCL 2.28); what
// all versions share does not, so that another version is one more block here and one more shim.
// Units: speed in Mb/s, latency in microseconds, sizes in bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pacecar::nccl {

enum class NcclResult : int {  // ncclResult_t
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

enum class LogSeverity : int {
  kNone,
  kVersion,
  kWarn,
  kInfo,
  kAbort,
  kTrace
};  // NCCL_DEBUG levels

constexpr unsigned long kSubsystemInit = 0x1;  // NCCL_DEBUG_SUBSYS bits
constexpr unsigned long kSubsystemNet = 0x10;

// Formats as printf does; may be called from any thread.
using Logger = void (*)(LogSeverity severity, unsigned long subsystems, const char* file, int line,
                        const char* format, ...);
using ProfilerCallback = NcclResult (*)(void** event, int type, void* parent, int64_t plugin_id,
                                        void* data);

constexpr size_t kHandleBytes = 128;
constexpr int kMaxRequestsPerConnection = 32;
constexpr size_t kMaxTransferBytes = size_t{1} << 40;
constexpr int kUndefined = -1;  // a traffic class or attribute that nobody set

// Kinds of memory: bits of NetPropertiesV11::pointer_support, one of them as regMr's type.
constexpr int kPointerHost = 0x1;
constexpr int kPointerCuda = 0x2;
constexpr int kPointerDmaBuf = 0x4;

constexpr int kDeviceTypeHost = 0;  // no part of the network runs on the GPU

struct VirtualDeviceV11 {
  int count;
  int devices[4];
};

struct NetPropertiesV11 {
  char* name;
  char* pci_path;  // below /sys; nullptr for a device that is not on PCI
  uint64_t guid;
  int pointer_support;
  int registration_is_global;  // a registration serves every connection of the device
  int force_flush;
  int speed;
  int port;
  float latency;  // 0: unknown, NCCL takes its own figure
  int max_connections;
  int max_receives;  // buffers of one receive
  int device_type;
  int device_version;
  VirtualDeviceV11 virtual_device;
  size_t max_p2p_bytes;
  size_t max_collective_bytes;
  int max_multi_request_size;
};

struct CommConfigV11 {
  int traffic_class;
};

struct CommAttributesV11 {
  int32_t max_concurrent_peers;
  int32_t min_concurrent_peers;
  int32_t max_flows_per_peer;
  int32_t min_flows_per_peer;
};

struct NetAttributesV11 {
  CommAttributesV11 send;
  CommAttributesV11 receive;
  uint32_t operations;
  uint32_t algorithms;
  uint32_t protocols;
};

struct DeviceHandle;  // device offload, which we do not have

// The members keep NCCL's names: they are what people look for.
struct NetV11 {
  const char* name;
  NcclResult (*init)(void** context, uint64_t comm_id, CommConfigV11* config, Logger logger,
                     ProfilerCallback profiler);
  NcclResult (*devices)(int* count);
  NcclResult (*getProperties)(int device, NetPropertiesV11* properties);
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
  NcclResult (*makeVDevice)(int* device, VirtualDeviceV11* properties);
  NcclResult (*finalize)(void* context);
  NcclResult (*setNetAttr)(void* context, NetAttributesV11* attributes);
};

static_assert(sizeof(void*) == 8 && sizeof(NcclResult) == 4 && sizeof(LogSeverity) == 4);
static_assert(sizeof(VirtualDeviceV11) == 20);
static_assert(sizeof(NetPropertiesV11) == 112);
static_assert(offsetof(NetPropertiesV11, name) == 0);
static_assert(offsetof(NetPropertiesV11, pci_path) == 8);
static_assert(offsetof(NetPropertiesV11, guid) == 16);
static_assert(offsetof(NetPropertiesV11, pointer_support) == 24);
static_assert(offsetof(NetPropertiesV11, registration_is_global) == 28);
static_assert(offsetof(NetPropertiesV11, force_flush) == 32);
static_assert(offsetof(NetPropertiesV11, speed) == 36);
static_assert(offsetof(NetPropertiesV11, port) == 40);
static_assert(offsetof(NetPropertiesV11, latency) == 44);
static_assert(offsetof(NetPropertiesV11, max_connections) == 48);
static_assert(offsetof(NetPropertiesV11, max_receives) == 52);
static_assert(offsetof(NetPropertiesV11, device_type) == 56);
static_assert(offsetof(NetPropertiesV11, device_version) == 60);
static_assert(offsetof(NetPropertiesV11, virtual_device) == 64);
static_assert(offsetof(NetPropertiesV11, max_p2p_bytes) == 88);
static_assert(offsetof(NetPropertiesV11, max_collective_bytes) == 96);
static_assert(offsetof(NetPropertiesV11, max_multi_request_size) == 104);
static_assert(sizeof(CommConfigV11) == 4);
static_assert(sizeof(NetAttributesV11) == 44);
static_assert(sizeof(NetV11) == 176);
static_assert(offsetof(NetV11, init) == 8);
static_assert(offsetof(NetV11, listen) == 32);
static_assert(offsetof(NetV11, isend) == 80);
static_assert(offsetof(NetV11, test) == 104);
static_assert(offsetof(NetV11, getDeviceMr) == 136);
static_assert(offsetof(NetV11, finalize) == 160);
static_assert(offsetof(NetV11, setNetAttr) == 168);

}  // namespace pacecar::nccl
