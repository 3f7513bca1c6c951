#include "net_plugin/predict/collective.h"

#include <array>

namespace pacecar::predict {

std::string_view name_of(Operation operation) {
  constexpr std::array<std::string_view, kOperations> kNames{
      "allreduce", "allgather", "reducescatter", "broadcast", "reduce", "alltoall", "sendrecv"};
  return kNames[static_cast<size_t>(operation)];
}

std::string_view name_of(Algorithm algorithm) {
  constexpr std::array<std::string_view, kAlgorithms> kNames{
      "ring", "tree", "nvls", "nvlstree", "pat", "hierarchical", "pairwise"};
  return kNames[static_cast<size_t>(algorithm)];
}

std::string_view name_of(Protocol protocol) {
  constexpr std::array<std::string_view, kProtocols> kNames{"Simple", "LL", "LL128"};
  return kNames[static_cast<size_t>(protocol)];
}

bool supported(Operation operation, Algorithm algorithm) {
  const bool parts = operation == Operation::kAllGather || operation == Operation::kReduceScatter;
  const bool pairs = operation == Operation::kAllToAll || operation == Operation::kSendRecv;
  switch (algorithm) {
    case Algorithm::kRing:
      return !pairs;
    case Algorithm::kTree:
      return !pairs && !parts;
    case Algorithm::kNvls:
      return operation == Operation::kAllReduce || parts;
    case Algorithm::kNvlsTree:
    case Algorithm::kHierarchical:
      return operation == Operation::kAllReduce;
    case Algorithm::kPat:
      return parts;
    case Algorithm::kPairwise:
      return pairs;
  }
  return false;
}

bool goes_in_pieces(const Collective& what) {
  return what.algorithm == Algorithm::kTree || what.algorithm == Algorithm::kNvlsTree ||
         (what.algorithm == Algorithm::kRing &&
          (what.operation == Operation::kBroadcast || what.operation == Operation::kReduce));
}

double bus_factor(Operation operation, uint32_t ranks) {
  const double n = ranks;
  switch (operation) {
    case Operation::kAllReduce:
      return 2 * (n - 1) / n;
    case Operation::kAllGather:
    case Operation::kReduceScatter:
    case Operation::kAllToAll:
      return (n - 1) / n;
    default:
      return 1;
  }
}

}  // namespace pacecar::predict
