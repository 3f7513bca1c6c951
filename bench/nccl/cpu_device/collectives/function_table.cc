#include "bench/nccl/cpu_device/collectives/function_table.h"

#include <cstddef>

namespace pacecar::nccl::cpu {
namespace {

constexpr int kReductions = 5;

class Rows {
 public:
  explicit Rows(const int* row_to_id) : row_to_id_(row_to_id) {}

  void add(Operation operation, const std::vector<Algorithm>& algorithms,
           Reduction reduction = Reduction::kSum, Type type = Type::kUint8) {
    for (const Algorithm algorithm : algorithms) {
      for (const Protocol protocol : {Protocol::kLl, Protocol::kLl128, Protocol::kSimple}) {
        add(Function{operation, reduction, type, algorithm, protocol});
      }
    }
  }

  void add_reductions(Operation operation, const std::vector<Algorithm>& algorithms, int types) {
    for (int reduction = 0; reduction < kReductions; ++reduction) {
      for (int type = 0; type < types; ++type) {
        add(operation, algorithms, static_cast<Reduction>(reduction), static_cast<Type>(type));
      }
    }
  }

  void add(const Function& function) {
    const int id = *row_to_id_++;
    if (id < 0) return;
    const auto place = static_cast<size_t>(id);
    if (place >= table_.size()) table_.resize(place + 1);
    if (table_[place].operation == Operation::kNone) table_[place] = function;
  }

  std::vector<Function> take() { return std::move(table_); }

 private:
  const int* row_to_id_;
  std::vector<Function> table_;
};

}  // namespace

std::vector<Function> function_table(const Layout& layout, const int* row_to_id) {
  const std::vector<Algorithm> ring{Algorithm::kRing};
  const std::vector<Algorithm> all{Algorithm::kTree,          Algorithm::kRing,
                                   Algorithm::kCollnetDirect, Algorithm::kCollnetChain,
                                   Algorithm::kNvls,          Algorithm::kNvlsTree};
  std::vector<Algorithm> shares{Algorithm::kRing, Algorithm::kCollnetDirect, Algorithm::kNvls};
  if (layout.functions.pat) shares.push_back(Algorithm::kPat);
  Rows rows(row_to_id);
  rows.add(Function{.operation = Operation::kSendReceive});
  rows.add(Operation::kAllGather, shares);
  rows.add(Operation::kBroadcast, ring);
  if (layout.functions.all_gather_v) rows.add(Operation::kAllGatherV, ring);
  rows.add_reductions(Operation::kAllReduce, all, layout.functions.types);
  rows.add_reductions(Operation::kReduce, ring, layout.functions.types);
  rows.add_reductions(Operation::kReduceScatter, shares, layout.functions.types);
  return rows.take();
}

}  // namespace pacecar::nccl::cpu
