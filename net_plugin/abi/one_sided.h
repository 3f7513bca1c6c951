// The tables of functions by which NCCL calls a plugin for one-sided operations in proxy mode: puts
// that a GPU asks for and a thread of NCCL starts (GIN), and puts of the host (RMA). One symbol per
// version: ncclGinPlugin_v11 (NCCL 2.28), _v12 (2.29.7), _v13 (2.30); ncclRmaPlugin_v13 (equal to
// GIN 13), _v14 (2.30.7), _v15, _v16 (2.32.3). GIN 14 has no proxy mode: NCCL has its own over RMA.
// RMA 17 has had three layouts so far; an NCCL that has RMA 17 takes RMA 16, too.
// The members keep NCCL's names. What changed: 12 brought several connections, 13 contexts in proxy
// mode, gets and flushes; 14 of RMA dropped device handles and distinguishes strong from weak
// signals; 15 has flags by which puts may be gathered, 16 a communicator's properties. All ranks
// call regMrSym and connect, which block until all have called. A request is never NULL: NCCL does
// not call again. Offsets and sizes are bytes; a window's offsets count within each rank's part.
#pragma once

#include "net_plugin/abi/properties.h"
#include "net_plugin/abi/types.h"

namespace pacecar::nccl {

constexpr int kDeviceTypeGinProxy = 2;  // properties' device_type

// iputSignal's signal_op.
constexpr uint32_t kSignalIncrement = 0x1;  // by one, whatever the value
constexpr uint32_t kSignalAdd = 0x2;

struct GinConfigV13 {
  int signals;
  int counters;
  int contexts;
  int queue_depth;
  int traffic_class;
};

struct RmaConfigV14 {
  int contexts;
  int traffic_class;
  int rank_stride;
};

// `Connection`: of version 12, the number of one of several connections.
template <typename... Connection>
struct GinV11V12 {
  const char* name;
  NcclResult (*init)(void** context, uint64_t comm_id, Logger logger);
  NcclResult (*devices)(int* count);
  NcclResult (*getProperties)(int device, NetPropertiesV11* properties);
  NcclResult (*listen)(void* context, int device, void* handle, void** listen_comm);
  NcclResult (*connect)(void* context, void* handles[], int ranks, int rank,
                        Connection... connections, Connection... queue_depth, void* listen_comm,
                        void** collective);
  NcclResult (*createContext)(void* collective, int signals, int counters, Connection... contexts,
                              void** gin_context, DeviceHandle** device_handle);
  NcclResult (*regMrSym)(void* collective, void* data, size_t size, int type, uint64_t flags,
                         void** window, void** gin_window);
  NcclResult (*regMrSymDmaBuf)(void* collective, void* data, size_t size, int type, uint64_t offset,
                               int fd, uint64_t flags, void** window, void** gin_window);
  NcclResult (*deregMrSym)(void* collective, void* window);
  NcclResult (*destroyContext)(void* gin_context);
  NcclResult (*closeColl)(void* collective);
  NcclResult (*closeListen)(void* listen_comm);
  NcclResult (*iput)(void* collective, uint64_t source_offset, void* source, size_t size,
                     uint64_t offset, void* window, uint32_t rank, Connection... connection,
                     void** request);
  NcclResult (*iputSignal)(void* collective, uint64_t source_offset, void* source, size_t size,
                           uint64_t offset, void* window, uint32_t rank, uint64_t signal_offset,
                           void* signal_window, uint64_t signal_value, uint32_t signal_op,
                           Connection... connection, void** request);
  NcclResult (*test)(void* collective, void* request, int* done);
  NcclResult (*ginProgress)(void* collective);
  NcclResult (*queryLastError)(void* gin_context, bool* has_error);
  NcclResult (*finalize)(void* context);
};
using GinV11 = GinV11V12<>;
using GinV12 = GinV11V12<int>;

struct GinV13 {
  const char* name;
  NcclResult (*init)(void** context, uint64_t comm_id, Logger logger);
  NcclResult (*devices)(int* count);
  NcclResult (*getProperties)(int device, NetPropertiesV12* properties);
  NcclResult (*listen)(void* context, int device, void* handle, void** listen_comm);
  NcclResult (*connect)(void* context, void* handles[], int ranks, int rank, void* listen_comm,
                        void** collective);
  NcclResult (*createContext)(void* collective, GinConfigV13* config, void** gin_context,
                              DeviceHandle** device_handle);
  NcclResult (*regMrSym)(void* collective, void* data, size_t size, int type, uint64_t flags,
                         void** window, void** gin_window);
  NcclResult (*regMrSymDmaBuf)(void* collective, void* data, size_t size, int type, uint64_t offset,
                               int fd, uint64_t flags, void** window, void** gin_window);
  NcclResult (*deregMrSym)(void* collective, void* window);
  NcclResult (*destroyContext)(void* gin_context);
  NcclResult (*closeColl)(void* collective);
  NcclResult (*closeListen)(void* listen_comm);
  NcclResult (*iput)(void* gin_context, int number, uint64_t source_offset, void* source,
                     size_t size, uint64_t offset, void* window, uint32_t rank, void** request);
  NcclResult (*iputSignal)(void* gin_context, int number, uint64_t source_offset, void* source,
                           size_t size, uint64_t offset, void* window, uint32_t rank,
                           uint64_t signal_offset, void* signal_window, uint64_t signal_value,
                           uint32_t signal_op, void** request);
  NcclResult (*iget)(void* gin_context, int number, uint64_t offset, void* window, size_t size,
                     uint64_t local_offset, void* local, uint32_t rank, void** request);
  NcclResult (*iflush)(void* gin_context, int number, void* window, uint32_t rank, void** request);
  NcclResult (*test)(void* collective, void* request, int* done);
  NcclResult (*ginProgress)(void* gin_context);
  NcclResult (*queryLastError)(void* gin_context, bool* has_error);
  NcclResult (*finalize)(void* context);
};
using RmaV13 = GinV13;

struct RmaPropertiesV16 {
  bool any_signal_flushes_all_puts;  // false: NCCL flushes for each peer
};

using GetRmaPropertiesV16 = NcclResult (*)(void* collective, RmaPropertiesV16* properties);
struct NoRmaProperties {};  // before version 16

// `Flags`: from version 15.
template <typename GetRmaProperties, typename... Flags>
struct RmaV14V16 {
  const char* name;
  NcclResult (*init)(void** context, uint64_t comm_id, Logger logger);
  NcclResult (*devices)(int* count);
  [[no_unique_address]] GetRmaProperties getRmaProperties;
  NcclResult (*getProperties)(int device, NetPropertiesV12* properties);
  NcclResult (*listen)(void* context, int device, void* handle, void** listen_comm);
  NcclResult (*connect)(void* context, void* handles[], int ranks, int rank, void* listen_comm,
                        void** collective);
  NcclResult (*createContext)(void* collective, RmaConfigV14* config, void** rma_context);
  NcclResult (*regMrSym)(void* collective, void* data, size_t size, int type, uint64_t flags,
                         void** window);
  NcclResult (*regMrSymDmaBuf)(void* collective, void* data, size_t size, int type, uint64_t offset,
                               int fd, uint64_t flags, void** window);
  NcclResult (*deregMrSym)(void* collective, void* window);
  NcclResult (*destroyContext)(void* rma_context);
  NcclResult (*closeColl)(void* collective);
  NcclResult (*closeListen)(void* listen_comm);
  NcclResult (*iput)(void* rma_context, int number, uint64_t source_offset, void* source,
                     size_t size, uint64_t offset, void* window, uint32_t rank, Flags... flags,
                     void** request);
  NcclResult (*iputSignal)(void* rma_context, int number, uint64_t source_offset, void* source,
                           size_t size, uint64_t offset, void* window, uint32_t rank,
                           uint64_t signal_offset, void* signal_window, uint64_t signal_value,
                           uint32_t signal_op, bool strong, Flags... flags, void** request);
  NcclResult (*iget)(void* rma_context, int number, uint64_t offset, void* window, size_t size,
                     uint64_t local_offset, void* local, uint32_t rank, Flags... flags,
                     void** request);
  NcclResult (*iflush)(void* rma_context, int number, void* window, uint32_t rank, void** request);
  NcclResult (*test)(void* collective, void* request, int* done);
  NcclResult (*rmaProgress)(void* rma_context);
  NcclResult (*queryLastError)(void* rma_context, bool* has_error);
  NcclResult (*finalize)(void* context);
};
using RmaV14 = RmaV14V16<NoRmaProperties>;
using RmaV15 = RmaV14V16<NoRmaProperties, uint32_t>;
using RmaV16 = RmaV14V16<GetRmaPropertiesV16, uint32_t>;

static_assert(sizeof(GinConfigV13) == 20 && sizeof(RmaConfigV14) == 12);
static_assert(sizeof(GinV11) == 152 && sizeof(GinV12) == 152);
static_assert(sizeof(GinV13) == 168 && sizeof(RmaV14) == 168 && sizeof(RmaV15) == 168);
static_assert(sizeof(RmaPropertiesV16) == 1 && sizeof(RmaV16) == 176);
static_assert(offsetof(GinV11, connect) == 40 && offsetof(GinV12, connect) == 40);
static_assert(offsetof(GinV11, iput) == 104 && offsetof(GinV12, iput) == 104);
static_assert(offsetof(GinV11, finalize) == 144 && offsetof(GinV12, finalize) == 144);
static_assert(offsetof(GinV13, iput) == 104 && offsetof(GinV13, test) == 136);
static_assert(offsetof(RmaV14, createContext) == 48 && offsetof(RmaV14, iput) == 104);
static_assert(offsetof(RmaV14, iflush) == 128 && offsetof(RmaV14, finalize) == 160);
static_assert(offsetof(RmaV15, iget) == 120 && offsetof(RmaV15, rmaProgress) == 144);
static_assert(offsetof(RmaV16, getRmaProperties) == 24 && offsetof(RmaV16, getProperties) == 32);

}  // namespace pacecar::nccl
