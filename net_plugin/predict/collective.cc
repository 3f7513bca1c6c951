#include "net_plugin/predict/collective.h"

namespace pacecar::predict {
bool supported(Operation operation, Algorithm algorithm) {
  const bool all_reduce = operation == Operation::kAllReduce;
  const bool parts = operation == Operation::kAllGather || operation == Operation::kReduceScatter;
  const bool pairs = operation == Operation::kAllToAll || operation == Operation::kSendRecv;
  // In the order of Algorithm.
  const std::array<bool, kAlgorithms> by_algorithm{
      !pairs, !pairs && !parts, all_reduce || parts, all_reduce, parts, all_reduce, pairs};
  return by_algorithm[static_cast<size_t>(algorithm)];
}

bool goes_in_pieces(const Collective& what) {
  return what.algorithm == Algorithm::kTree || what.algorithm == Algorithm::kNvlsTree ||
         (what.algorithm == Algorithm::kRing &&
          (what.operation == Operation::kBroadcast || what.operation == Operation::kReduce));
}

double bus_factor(Operation operation, uint32_t ranks) {
  if (operation != Operation::kAllReduce && operation != Operation::kAllGather &&
      operation != Operation::kReduceScatter && operation != Operation::kAllToAll) {
    return 1;
  }
  const double n = ranks;
  return (operation == Operation::kAllReduce ? 2 : 1) * (n - 1) / n;
}

LibraryCosts nccl_costs() {
  LibraryCosts costs;
  // Simple: buffers of 4 MiB in 8 slots; rings fill four at once, and forward by halves; steps wait
  // for a fence and the proxy. LL and LL128: 512 KiB and about 4.7 MiB, flags included, which stand
  // for fences.
  costs.protocols[static_cast<size_t>(Protocol::kSimple)] = {.launch_s = 6e-6,
                                                             .step_s = 4e-6,
                                                             .local_step_s = 1.5e-6,
                                                             .chunk = 512 * 1024,
                                                             .slots = 8,
                                                             .slices = 2,
                                                             .ring_chunks = 4};
  costs.protocols[static_cast<size_t>(Protocol::kLl)] = {.launch_s = 5e-6,
                                                         .step_s = 0.7e-6,
                                                         .local_step_s = 0.1e-6,
                                                         .payload = 0.5,
                                                         .chunk = 32 * 1024,
                                                         .slots = 8};
  costs.protocols[static_cast<size_t>(Protocol::kLl128)] = {.launch_s = 5e-6,
                                                            .step_s = 1.5e-6,
                                                            .local_step_s = 0.5e-6,
                                                            .payload = 120.0 / 128,
                                                            .rate_share = 0.92,
                                                            .chunk = 576'000,
                                                            .slots = 8};
  return costs;
}

LibraryCosts message_costs() { return {.near_trees = false}; }

}  // namespace pacecar::predict
