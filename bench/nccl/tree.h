// A tree all-reduce over a net plugin, pipelined: sums go slice by slice to rank 0, whose children
// are ranks 1 and 2, those of 1 ranks 3 and 4, and so on; results come down the same way. Receives
// are posted ahead, into buffers of their own. Errors are thrown. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "bench/nccl/all_reduce.h"
#include "bench/nccl/link.h"

namespace pacecar::nccl {

class Tree final : public AllReduce {
 public:
  Tree(const Host& host, Board& board, int rank, size_t capacity);

  void run(size_t elements) override;
  void close() override;

 private:
  // Both ways to one other rank.
  struct Neighbour {
    Link& out;
    Link& in;
    std::vector<float>& scratch;  // what comes in
  };

  bool root() const { return rank_ == 0; }
  Neighbour neighbour(size_t rank);
  std::span<float> slice(size_t index);
  bool receive(Neighbour& from, bool result);
  bool send(Neighbour& to, size_t ready);
  size_t summed() const;  // slices of all that is below
  bool advance();
  bool done() const;

  std::deque<std::vector<float>> scratch_;  // by distance around the ring of ranks, from 1
  std::deque<Link> links_;                  // likewise
  std::vector<Neighbour> parent_;           // none, or one
  std::vector<Neighbour> children_;
  size_t count_ = 0;  // elements of the operation that runs
  size_t total_ = 0;  // its slices
};

}  // namespace pacecar::nccl
