// The functions of NCCL and of CUDA's driver that tests call, in addition to
// bench/nccl/gpu/libraries.h. Any that a version lacks is nullptr. Thread rule: load once, before
// threads start.
#pragma once

#include <cstddef>
#include <string>

#include "bench/nccl/gpu/libraries.h"

namespace pacecar::nccl_test {

using nccl::NcclCommunicator;
using nccl::Stream;
using nccl::UniqueId;
using Graph = struct OpaqueGraph*;
using ExecutableGraph = struct OpaqueExecutableGraph*;

inline constexpr int kInProgress = 7;  // ncclInProgress

// ncclConfig_t as NCCL 2.22 has it; later versions take the fields that are not there for unset.
struct Config {
  static constexpr int kUnset = -2147483647 - 1;
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 22200;
  int blocking = kUnset;
  int cluster_blocks = kUnset;
  int least_blocks = kUnset;
  int most_blocks = kUnset;
  const char* network = nullptr;
  int split_share = kUnset;
};

struct MoreCalls {
  int (*init_with)(NcclCommunicator*, int, UniqueId, int, Config*) = nullptr;
  int (*split)(NcclCommunicator, int, int, NcclCommunicator*, Config*) = nullptr;
  int (*count)(NcclCommunicator, int*) = nullptr;
  int (*abort)(NcclCommunicator) = nullptr;
  int (*finalize)(NcclCommunicator) = nullptr;
  int (*register_buffer)(NcclCommunicator, void*, size_t, void**) = nullptr;
  int (*deregister_buffer)(NcclCommunicator, void*) = nullptr;
  int (*allocate)(void**, size_t) = nullptr;
  int (*release)(void*) = nullptr;
  // The last: 1 of a symmetric window.
  int (*register_window)(NcclCommunicator, void*, size_t, void**, int) = nullptr;
  int (*deregister_window)(NcclCommunicator, void*) = nullptr;
  // gin.h has the requirements and the result.
  int (*create_device_communicator)(NcclCommunicator, const void*, void*) = nullptr;
  int (*destroy_device_communicator)(NcclCommunicator, const void*) = nullptr;
  // Operation, scalar, type, residence (1: in host memory, read at once), communicator.
  int (*create_scaled_sum)(int*, void*, int, int, NcclCommunicator) = nullptr;
  int (*destroy_operation)(int, NcclCommunicator) = nullptr;
  int (*begin_capture)(Stream, int mode) = nullptr;
  int (*end_capture)(Stream, Graph*) = nullptr;
  int (*instantiate)(ExecutableGraph*, Graph, unsigned long long flags) = nullptr;
  int (*launch)(ExecutableGraph, Stream) = nullptr;
  int (*destroy_graph)(Graph) = nullptr;
  int (*destroy_executable)(ExecutableGraph) = nullptr;
};

// Loads the driver and NCCL, from the file; ends the program with a sentence when that fails.
void load_all(const std::string& nccl_file);
const MoreCalls& more();

}  // namespace pacecar::nccl_test
