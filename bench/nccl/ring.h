// A ring all-reduce over a net plugin, pipelined as NCCL's: N-1 steps in which sums travel once
// around the ring, then N-1 steps in which the results do.
//
// The work is a stream of slices in the order of steps; slice i of the outgoing stream may leave
// when the slice one step before it has come in. As NCCL's, receives are posted ahead, into buffers
// of their own, from which the data is taken. Errors are thrown. Thread rule: one thread.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "bench/nccl/board.h"
#include "net_plugin/host/host.h"

namespace pacecar::nccl {

class Ring {
 public:
  // Connects `rank` to its neighbours; every rank does. `capacity` is in elements.
  Ring(const Host& host, Board& board, int rank, size_t capacity);
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  std::span<float> data() { return data_; }
  // Replaces the first `count` elements of data() by their sums over all ranks.
  void all_reduce(size_t count);
  void close();

 private:
  static constexpr size_t kWindow = 8;               // slices in flight, each way
  static constexpr size_t kSliceElements = 1 << 17;  // 512 KiB

  struct Stream {
    size_t posted = 0;
    size_t done = 0;
    std::array<void*, kWindow> requests{};

    bool window_open() const { return posted - done < kWindow; }
    void* request(size_t index) const { return requests[index % kWindow]; }
    // False when the plugin said "again later".
    bool post(void* request) {
      if (request != nullptr) requests[posted++ % kWindow] = request;
      return request != nullptr;
    }
  };

  void connect_neighbours();

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
  bool finish_send();

  const Host& host_;
  Board& board_;
  size_t rank_;
  size_t ranks_;
  std::vector<float> data_;
  std::vector<float> scratch_;
  Ends ends_;
  std::optional<Registration> send_memory_;
  std::optional<Registration> scratch_memory_;

  // Of the operation that runs.
  size_t count_ = 0;
  size_t slices_per_step_ = 0;
  size_t total_ = 0;  // slices each way
  Stream sends_;
  Stream receives_;
};

}  // namespace pacecar::nccl
