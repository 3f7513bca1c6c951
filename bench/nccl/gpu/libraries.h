// The functions of CUDA's driver and of NCCL that a rank calls, by their published C interfaces.
// Both libraries are loaded at run time, so that one binary serves every version and can be built
// without either. NCCL's own CUDA runtime uses the context that is current, a primary one. Enums
// are passed as int. Thread rule: load once, before threads start.
#pragma once

#include <cstddef>
#include <string>

namespace pacecar::nccl {

inline constexpr const char* kDriverLibrary = "libcuda.so.1";
inline constexpr int kSuccess = 0;
inline constexpr int kNotReady = 600;  // CUDA_ERROR_NOT_READY
inline constexpr int kFloat = 7;       // ncclFloat
inline constexpr int kSum = 0;         // ncclSum
inline constexpr size_t kIdBytes = 128;

using Device = int;
using DevicePointer = unsigned long long;
using Context = struct OpaqueContext*;
using Stream = struct OpaqueStream*;
using NcclCommunicator = struct OpaqueCommunicator*;
struct UniqueId {
  char internal[kIdBytes];
};

// CALL(member, exported symbol, argument types); all return CUresult.
#define PACECAR_DRIVER_CALLS(CALL)                                          \
  CALL(init, cuInit, unsigned)                                              \
  CALL(version, cuDriverGetVersion, int*)                                   \
  CALL(error_string, cuGetErrorString, int, const char**)                   \
  CALL(device_count, cuDeviceGetCount, int*)                                \
  CALL(device_get, cuDeviceGet, Device*, int)                               \
  CALL(retain_context, cuDevicePrimaryCtxRetain, Context*, Device)          \
  CALL(set_context, cuCtxSetCurrent, Context)                               \
  CALL(allocate, cuMemAlloc_v2, DevicePointer*, size_t)                     \
  CALL(release, cuMemFree_v2, DevicePointer)                                \
  CALL(set_bytes, cuMemsetD8_v2, DevicePointer, unsigned char, size_t)      \
  CALL(copy_to_device, cuMemcpyHtoD_v2, DevicePointer, const void*, size_t) \
  CALL(copy_to_host, cuMemcpyDtoH_v2, void*, DevicePointer, size_t)         \
  CALL(stream_create, cuStreamCreate, Stream*, unsigned)                    \
  CALL(stream_query, cuStreamQuery, Stream)                                 \
  CALL(stream_destroy, cuStreamDestroy_v2, Stream)

// The same for NCCL; all return ncclResult_t.
#define PACECAR_NCCL_CALLS(CALL)                                                                  \
  CALL(version, ncclGetVersion, int*)                                                             \
  CALL(unique_id, ncclGetUniqueId, UniqueId*)                                                     \
  CALL(init_rank, ncclCommInitRank, NcclCommunicator*, int, UniqueId, int)                        \
  CALL(destroy, ncclCommDestroy, NcclCommunicator)                                                \
  CALL(async_error, ncclCommGetAsyncError, NcclCommunicator, int*)                                \
  CALL(all_reduce, ncclAllReduce, const void*, void*, size_t, int, int, NcclCommunicator, Stream) \
  CALL(all_gather, ncclAllGather, const void*, void*, size_t, int, NcclCommunicator, Stream)      \
  CALL(reduce_scatter, ncclReduceScatter, const void*, void*, size_t, int, int, NcclCommunicator, \
       Stream)                                                                                    \
  CALL(broadcast, ncclBroadcast, const void*, void*, size_t, int, int, NcclCommunicator, Stream)  \
  CALL(reduce, ncclReduce, const void*, void*, size_t, int, int, int, NcclCommunicator, Stream)   \
  CALL(send, ncclSend, const void*, size_t, int, int, NcclCommunicator, Stream)                   \
  CALL(receive, ncclRecv, void*, size_t, int, int, NcclCommunicator, Stream)                      \
  CALL(group_start, ncclGroupStart)                                                               \
  CALL(group_end, ncclGroupEnd)

#define PACECAR_MEMBER(member, symbol, ...) int (*member)(__VA_ARGS__) = nullptr;
struct Driver {
  PACECAR_DRIVER_CALLS(PACECAR_MEMBER)
};
struct Nccl {
  const char* (*error_string)(int) = nullptr;
  PACECAR_NCCL_CALLS(PACECAR_MEMBER)
};
#undef PACECAR_MEMBER

// Load a library. Return in one sentence why it cannot be used; empty when it can.
std::string load_driver();
std::string load_nccl(const std::string& file);

// The loaded functions; invalid before loading.
const Driver& driver();
const Nccl& nccl();

}  // namespace pacecar::nccl
