// A collective to be predicted: NCCL's operation, how the library carries it out, what that costs,
// and how it divides buffers. Times in seconds. Plain data; pure functions.
#pragma once

#include <array>
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

// As NCCL's variables and the names of nccl-tests have them.
inline constexpr std::array<std::string_view, kOperations> kOperationNames{
    "allreduce", "allgather", "reducescatter", "broadcast", "reduce", "alltoall", "sendrecv"};
inline constexpr std::array<std::string_view, kAlgorithms> kAlgorithmNames{
    "ring", "tree", "nvls", "nvlstree", "pat", "hierarchical", "pairwise"};
inline constexpr std::array<std::string_view, kProtocols> kProtocolNames{"Simple", "LL", "LL128"};
constexpr std::string_view name_of(Operation o) { return kOperationNames[static_cast<size_t>(o)]; }
constexpr std::string_view name_of(Algorithm a) { return kAlgorithmNames[static_cast<size_t>(a)]; }
constexpr std::string_view name_of(Protocol p) { return kProtocolNames[static_cast<size_t>(p)]; }

struct Collective {
  Operation operation = Operation::kAllReduce;
  Algorithm algorithm = Algorithm::kRing;
  Protocol protocol = Protocol::kSimple;
  // As nccl-tests count: for all-gather and reduce-scatter the large buffer, for all-to-all all
  // that a rank sends, its own part included.
  Bytes bytes = 0;
  uint32_t channels = 0;  // rings or trees at the same time; 0: one for each NIC of a host
  // The hosts that take part with all their GPUs, in the order of their ranks. Empty: all hosts.
  std::vector<uint32_t> hosts;
  uint32_t group = 0;     // ranks in a group of kHierarchical; 0: the ranks of a host
  uint32_t pieces = 0;    // of the buffer in a tree or a chain; 0: as the library's chunks give
  uint32_t parallel = 0;  // messages that a rank sends at a time in an all-to-all; 0: all
};

// Whether NCCL, or a library like it, has this algorithm for this operation.
bool supported(Operation operation, Algorithm algorithm);

bool goes_in_pieces(const Collective& collective);  // A tree or a chain: the buffer goes in pieces.

// Bus bandwidth over algorithm bandwidth, as nccl-tests define them.
double bus_factor(Operation operation, uint32_t ranks);

// What the library above the transport costs, and how it divides buffers.
struct ProtocolCosts {
  double launch_s = 0;  // once per operation
  double step_s = 0;    // of a GPU per step over the network: it waits, sums, notifies the proxy
  double local_step_s = 0;   // of a GPU per step over NVLink, beyond the link's own latency
  double payload = 1;        // part of the sent bytes: LL has a flag per 4 bytes, LL128 one per 120
  double rate_share = 1;     // part of the links' rate that its kernels can use
  Bytes chunk = 0;           // most bytes that a channel sends at once; 0: a whole share
  uint32_t slots = 1;        // chunks in flight to one peer
  uint32_t slices = 1;       // parts of a chunk that are forwarded as they arrive
  uint32_t ring_chunks = 1;  // that a ring joins to one, which takes as many slots
};

struct LibraryCosts {
  std::array<ProtocolCosts, kProtocols> protocols;
  bool near_trees = true;  // two trees that join neighbours first; false: one heap

  const ProtocolCosts& of(Protocol protocol) const {
    return protocols[static_cast<size_t>(protocol)];
  }
};

// Chunks and flags as NCCL 2.29.7 has them (checked by tests/nccl, except LL128); times assumed,
// about as in its src/graph/tuning.cc.
LibraryCosts nccl_costs();

// Messages alone, as bench/workload sends them: whole shares, one at a time; sums take no time.
LibraryCosts message_costs();

// What a rank sends to one peer over one channel.
struct Messages {
  double count = 0;
  double bytes = 0;  // of each, flags included
};

}  // namespace pacecar::predict
