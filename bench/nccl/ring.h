// A ring all-reduce over a net plugin, pipelined as NCCL's: N-1 steps in which sums travel once
// around the ring, then N-1 steps in which the results do.
//
// The work is a stream of slices in the order of steps; slice i of the outgoing stream may leave
// when the slice one step before it has come in. As NCCL's, receives are posted ahead, into buffers
// of their own, from which the data is taken. Errors are thrown. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "bench/nccl/all_reduce.h"
#include "bench/nccl/link.h"

namespace pacecar::nccl {

class Ring final : public AllReduce {
 public:
  Ring(const Host& host, Board& board, int rank, size_t capacity);

  // Replaces the elements by their sums over all ranks.
  void run(size_t elements) override;
  void close() override;

 private:
  static constexpr size_t kWindow = RequestStream::kWindow;
  void plan(size_t count);
  bool reduces(size_t slice) const { return slice < (ranks_ - 1) * slices_per_step_; }
  // The part of data() that slice `index` of the outgoing or incoming stream covers.
  std::span<float> part(size_t index, size_t first_segment);
  std::span<float> outgoing(size_t index) { return part(index, rank_); }
  std::span<float> incoming(size_t index) { return part(index, rank_ + ranks_ - 1); }
  std::span<float> scratch(size_t index);

  bool post_receive();
  bool post_send();
  bool finish_receive();

  std::vector<float> scratch_;
  Link link_;

  // Of the operation that runs.
  size_t count_ = 0;
  size_t slices_per_step_ = 0;
  size_t total_ = 0;  // slices each way
};

}  // namespace pacecar::nccl
