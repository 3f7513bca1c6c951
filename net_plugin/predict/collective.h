// What is to be predicted: an operation of NCCL's, and how the library carries it out.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "transport/base/units.h"

namespace pacecar::predict {

enum class Operation : uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kReduce,
  kAllToAll,
  kSendRecv,
};
inline constexpr size_t kOperations = 7;

enum class Algorithm : uint8_t {
  kRing,
  kTree,
  kNvls,          // the NVLink switch within hosts, a ring between them
  kNvlsTree,      // likewise, a tree between them
  kPat,           // binomial trees of all ranks at once: all-gather and reduce-scatter
  kHierarchical,  // reduce-scatter within groups of ranks, rings between them, all-gather within
  kPairwise,      // all-to-all and send/receive
};
inline constexpr size_t kAlgorithms = 7;

enum class Protocol : uint8_t { kSimple, kLl, kLl128 };
inline constexpr size_t kProtocols = 3;

// As NCCL writes them in its environment and nccl-tests in their names: "allreduce", "ring",
// "LL128".
std::string_view name_of(Operation operation);
std::string_view name_of(Algorithm algorithm);
std::string_view name_of(Protocol protocol);

struct Collective {
  Operation operation = Operation::kAllReduce;
  Algorithm algorithm = Algorithm::kRing;
  Protocol protocol = Protocol::kSimple;
  // As nccl-tests count: of all-gather and reduce-scatter the large buffer, of all-to-all what one
  // rank sends to all, itself included.
  Bytes bytes = 0;
  uint32_t channels = 0;  // rings or trees at the same time; 0: as many as a host has NICs
  // Hosts that take part, in the order of their ranks; all GPUs of each. Empty: all, in their
  // order.
  std::vector<uint32_t> hosts;
  uint32_t group = 0;     // ranks of a group of kHierarchical; 0: those of a host
  uint32_t pieces = 0;    // of the buffer in a tree or a chain; 0: by the library's chunks
  uint32_t parallel = 0;  // messages of a rank at a time in an all-to-all; 0: all
};

// Whether NCCL, or a library like it, has this algorithm for this operation.
bool supported(Operation operation, Algorithm algorithm);

// Bus bandwidth over algorithm bandwidth, as nccl-tests define it.
double bus_factor(Operation operation, uint32_t ranks);

}  // namespace pacecar::predict
