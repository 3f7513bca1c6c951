#include "bench/nccl/collective.h"

#include <array>

#include "bench/nccl/all_to_all.h"
#include "bench/nccl/ring.h"
#include "bench/nccl/tree.h"

namespace pacecar::nccl {
namespace {

template <typename Kind>
std::unique_ptr<Collective> make(const Host& host, Board& board, int rank, size_t capacity) {
  return std::make_unique<Kind>(host, board, rank, capacity);
}

constexpr std::array kKinds{
    CollectiveKind{.name = "allreduce",
                   .title = "ring all-reduce",
                   .reduction = "sum",
                   .operation = "allreduce",
                   .algorithm = "ring",
                   .turns = 2,
                   .make = make<Ring>},
    CollectiveKind{.name = "tree",
                   .title = "tree all-reduce",
                   .reduction = "sum",
                   .operation = "allreduce",
                   .algorithm = "tree",
                   .turns = 2,
                   .make = make<Tree>},
    CollectiveKind{.name = "alltoall",
                   .title = "all-to-all",
                   .reduction = "none",
                   .operation = "alltoall",
                   .algorithm = "pairwise",
                   .turns = 1,
                   .divided = true,
                   .make = make<AllToAll>},
};

}  // namespace

std::span<const CollectiveKind> collectives() { return kKinds; }

}  // namespace pacecar::nccl
