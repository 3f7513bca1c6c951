// A collective to be predicted: NCCL's operation, and how the library carries it out. Plain data;
// pure functions.
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
  kNvls,          // the NVLink switch within hosts, a ring between hosts
  kNvlsTree,      // the NVLink switch within hosts, a tree between hosts
  kPat,           // binomial trees of all ranks at once: all-gather and reduce-scatter
  kHierarchical,  // reduce-scatter in groups of ranks, rings between groups, all-gather in groups
  kPairwise,      // all-to-all and send/receive
};
inline constexpr size_t kAlgorithms = 7;

enum class Protocol : uint8_t { kSimple, kLl, kLl128 };
inline constexpr size_t kProtocols = 3;

// As NCCL's variables and the names of nccl-tests have them: "allreduce", "ring", "LL128".
std::string_view name_of(Operation operation);
std::string_view name_of(Algorithm algorithm);
std::string_view name_of(Protocol protocol);

struct Collective {
  Operation operation = Operation::kAllReduce;
  Algorithm algorithm = Algorithm::kRing;
  Protocol protocol = Protocol::kSimple;
  // As nccl-tests count: for all-gather and reduce-scatter the large buffer, for all-to-all all
  // that a rank sends, its own part included.
  Bytes bytes = 0;
  uint32_t channels = 0;  // rings or trees at the same time; 0: one for each NIC of a host
  // The hosts that take part with all their GPUs, in the order of their ranks. Empty: all hosts of
  // the cluster.
  std::vector<uint32_t> hosts;
  uint32_t group = 0;     // ranks in a group of kHierarchical; 0: the ranks of a host
  uint32_t pieces = 0;    // of the buffer in a tree or a chain; 0: as the library's chunks give
  uint32_t parallel = 0;  // messages that a rank sends at a time in an all-to-all; 0: all
};

// Whether NCCL, or a library like it, has this algorithm for this operation.
bool supported(Operation operation, Algorithm algorithm);

// A tree or a chain: the buffer goes in pieces.
bool goes_in_pieces(const Collective& collective);

// Bus bandwidth over algorithm bandwidth, as nccl-tests define them.
double bus_factor(Operation operation, uint32_t ranks);

}  // namespace pacecar::predict
