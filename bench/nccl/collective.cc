#include "bench/nccl/collective.h"

#include <sched.h>

#include <algorithm>
#include <array>

#include "bench/nccl/all_to_all.h"
#include "bench/nccl/ring.h"
#include "bench/nccl/value_or_throw.h"

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
                   .turns = 2,
                   .divided = false,
                   .make = make<Ring>},
    CollectiveKind{.name = "alltoall",
                   .title = "all-to-all",
                   .reduction = "none",
                   .turns = 1,
                   .divided = true,
                   .make = make<AllToAll>},
};

}  // namespace

const CollectiveKind* find_collective(std::string_view name) {
  const auto* const found = std::ranges::find(kKinds, name, &CollectiveKind::name);
  return found == kKinds.end() ? nullptr : found;
}

Ends connect_around(const Host& host, Board& board, size_t rank, size_t distance) {
  const Listening listening = host.listen();
  board.handles[rank] = listening.handle;
  value_or_throw(board.barrier());
  HandleBytes next = board.handles[(rank + distance) % static_cast<size_t>(board.ranks())];
  Ends ends;
  // Both at once: each rank's connect waits for the next rank's accept, all around the ring.
  while (!host.try_both(next, listening.comm, &ends)) {
    value_or_throw(board.others_are_well());
    sched_yield();
  }
  host.close_listen(listening.comm);
  return ends;
}

}  // namespace pacecar::nccl
