// The functions that NCCL calls for one-sided operations, in a form for all versions of its tables.
// They translate void pointers to objects, and Result to ncclResult_t. A collective communicator is
// the group of its ranks; a context is a set of queues in it, which all share the group's order.
//
// Each writes its outputs before anything can fail. Thread rule: any thread. NCCL calls connect and
// share_memory on all ranks; they block until all ranks have called.
#pragma once

#include <cstdint>

#include "net_plugin/abi/types.h"

namespace pacecar::plugin::one_sided {

nccl::NcclResult init(void** context, uint64_t comm_id, nccl::Logger logger) noexcept;
nccl::NcclResult connect(void* context, void* handles[], int ranks, int rank, void* listen_comm,
                         void** collective) noexcept;
nccl::NcclResult close_collective(void* collective) noexcept;

nccl::NcclResult create_context(void* collective, int contexts, int traffic_class,
                                void** context) noexcept;
nccl::NcclResult destroy_context(void* context) noexcept;
// nullptr: no such context.
void* collective_of(void* context, int number);

nccl::NcclResult share_dmabuf(void* collective, void* data, size_t size, int type, uint64_t offset,
                              int fd, uint64_t flags, void** window) noexcept;
nccl::NcclResult share_memory(void* collective, void* data, size_t size, int type, uint64_t flags,
                              void** window) noexcept;
nccl::NcclResult unshare(void* collective, void* window) noexcept;

// A place in a window; offsets count within each rank's part.
struct At {
  void* window = nullptr;
  uint64_t offset = 0;
};
struct SignalCall {
  At word;
  uint64_t value = 0;
  uint32_t operation = 0;
};

// `signal` may be nullptr.
nccl::NcclResult put(void* collective, const At& from, size_t size, const At& to, uint32_t rank,
                     const SignalCall* signal, void** request) noexcept;
nccl::NcclResult get(void* collective, const At& from, size_t size, const At& to, uint32_t rank,
                     void** request) noexcept;
nccl::NcclResult flush(void* collective, uint32_t rank, void** request) noexcept;
nccl::NcclResult test(void* collective, void* request, int* done) noexcept;
nccl::NcclResult progress(void* collective) noexcept;
nccl::NcclResult last_error(void* collective, bool* has_error) noexcept;

}  // namespace pacecar::plugin::one_sided
