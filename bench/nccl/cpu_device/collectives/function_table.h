// What a batch of work asks for: NCCL numbers the combinations of operation, reduction, type,
// algorithm and protocol that it has kernels for, and the host writes that number.
#pragma once

#include <vector>

#include "bench/nccl/cpu_device/collectives/layout.h"

namespace pacecar::nccl::cpu {

enum class Operation {
  kNone,
  kSendReceive,
  kAllGather,
  kBroadcast,
  kAllGatherV,
  kAllReduce,
  kReduce,
  kReduceScatter
};
enum class Reduction { kSum, kProduct, kMinMax, kPreMultipliedSum, kSumPostDivided };
enum class Algorithm { kTree, kRing, kCollnetDirect, kCollnetChain, kNvls, kNvlsTree, kPat };
enum class Protocol { kLl, kLl128, kSimple };
// In NCCL's order.
enum class Type {
  kInt8,
  kUint8,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat16,
  kFloat32,
  kFloat64,
  kBfloat16,
  kFloat8E4M3,
  kFloat8E5M2
};

struct Function {
  Operation operation = Operation::kNone;
  Reduction reduction = Reduction::kSum;
  Type type = Type::kUint8;
  Algorithm algorithm = Algorithm::kRing;
  Protocol protocol = Protocol::kSimple;
};

// The functions by number. `row_to_id` is NCCL's ncclDevFuncRowToId: the number of each row of all
// combinations, in the order of NCCL's generate.py; -1 where no kernel exists. Rows that share a
// kernel, as signed and unsigned sums do, share the number, and the first row counts.
std::vector<Function> function_table(const Layout& layout, const int* row_to_id);

}  // namespace pacecar::nccl::cpu
