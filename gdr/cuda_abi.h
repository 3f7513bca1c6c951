// The binary interface of NVIDIA's driver library, as far as it is used here: types and constants
// of its published C interface, under names of our own. The comments have the driver's names.
// A build needs no CUDA headers; where they are installed, a test compares.
#pragma once

namespace pacecar::cuda {

using Status = int;                        // CUresult
using Device = int;                        // CUdevice
using DevicePointer = unsigned long long;  // CUdeviceptr
using Context = struct OpaqueContext*;     // CUcontext
using Stream = struct OpaqueStream*;       // CUstream
using Event = struct OpaqueEvent*;         // CUevent

inline constexpr Status kSuccess = 0;
inline constexpr Status kErrorOutOfMemory = 2;
inline constexpr Status kErrorNoDevice = 100;
inline constexpr Status kErrorNotReady = 600;

// CUdevice_attribute
inline constexpr int kAttributeRdmaSupported = 116;  // by a kernel module: nvidia-peermem
inline constexpr int kAttributeFlushOptions = 117;
inline constexpr int kAttributeWritesOrdering = 118;
inline constexpr int kAttributeDmaBufSupported = 124;

// CUpointer_attribute
inline constexpr int kPointerMemoryType = 2;
inline constexpr int kPointerBufferId = 7;
inline constexpr int kPointerIsManaged = 8;
inline constexpr int kPointerDeviceOrdinal = 9;
inline constexpr int kPointerRangeStart = 11;
inline constexpr int kPointerRangeSize = 12;

inline constexpr unsigned kMemoryTypeDevice = 2;      // CUmemorytype
inline constexpr int kHandleDmaBuf = 1;               // CUmemRangeHandleType
inline constexpr int kFlushOptionHost = 1;            // CUflushGPUDirectRDMAWritesOptions
inline constexpr int kFlushTargetCurrentContext = 0;  // CUflushGPUDirectRDMAWritesTarget
inline constexpr int kFlushScopeOwner = 100;          // CUflushGPUDirectRDMAWritesScope
inline constexpr int kOrderingOwner = 100;            // CUGPUDirectRDMAWritesOrdering
inline constexpr unsigned kHostMemoryPortable = 1;    // CU_MEMHOSTALLOC_PORTABLE
inline constexpr unsigned kStreamNonBlocking = 1;     // CU_STREAM_NON_BLOCKING
inline constexpr unsigned kEventWithoutTiming = 2;    // CU_EVENT_DISABLE_TIMING
inline constexpr int kCaptureModeRelaxed = 2;         // CU_STREAM_CAPTURE_MODE_RELAXED

}  // namespace pacecar::cuda
