// The binary interface between NCCL and a network plugin, written from its published layout: what
// all versions share. Properties and tables differ: properties.h, tables.h. Types carry our names,
// but NCCL's sizes, offsets, order and values; static_assert holds them. Units: sizes in bytes.
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

// NCCL_DEBUG levels.
enum class LogSeverity : int { kNone, kVersion, kWarn, kInfo, kAbort, kTrace };

constexpr unsigned long kSubsystemInit = 0x1;  // NCCL_DEBUG_SUBSYS bits
constexpr unsigned long kSubsystemNet = 0x10;

// Formats as printf does; may be called from any thread.
using Logger = void (*)(LogSeverity severity, unsigned long subsystems, const char* file, int line,
                        const char* format, ...);
using ProfilerCallback = NcclResult (*)(void** event, int type, void* parent, int64_t plugin_id,
                                        void* data);

constexpr int kOldestVersion = 6;
constexpr int kNewestVersion = 12;

constexpr size_t kHandleBytes = 128;
constexpr int kMaxRequestsPerConnection = 32;  // 8 in version 6
constexpr size_t kMaxTransferBytes = size_t{1} << 40;
constexpr int kUndefined = -1;  // an unset traffic class, attribute, rail or plane

// Kinds of memory: bits of the properties' pointer_support, one of them as regMr's type.
constexpr int kPointerHost = 0x1;
constexpr int kPointerCuda = 0x2;
constexpr int kPointerDmaBuf = 0x4;

constexpr int kDeviceTypeHost = 0;  // no part of the network runs on the GPU

// A hint in irecv's request before the call: NCCL does not need the receive's completion.
constexpr uintptr_t kOptionalCompletion = 1;

struct CommConfig {
  int traffic_class;
};

struct CommAttributes {
  int32_t max_concurrent_peers;
  int32_t min_concurrent_peers;
  int32_t max_flows_per_peer;
  int32_t min_flows_per_peer;
};

struct NetAttributes {
  CommAttributes send;
  CommAttributes receive;
  uint32_t operations;
  uint32_t algorithms;
  uint32_t protocols;
};

struct DeviceHandle;  // device offload, which we do not have

static_assert(sizeof(void*) == 8 && sizeof(NcclResult) == 4 && sizeof(LogSeverity) == 4);
static_assert(sizeof(CommConfig) == 4);
static_assert(sizeof(NetAttributes) == 44);

}  // namespace pacecar::nccl
