// A collective operation over a net plugin, on host buffers. Each rank's input is known, so that
// every element of the result can be checked.
//
// Sizes are the elements (floats) of a rank's buffer. Errors are thrown. Thread rule: one thread
// per rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "bench/nccl/board.h"
#include "net_plugin/host/host.h"

namespace pacecar::nccl {

class Collective {
 public:
  Collective(const Host& host, Board& board, int rank)
      : host_(host),
        board_(board),
        rank_(static_cast<size_t>(rank)),
        ranks_(static_cast<size_t>(board.ranks())) {}
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;
  virtual ~Collective() = default;

  // Fills the buffers: load() with the values that wrong() expects, clear() with zeros, which stay
  // zeros however often the operation runs.
  virtual void load(size_t elements) = 0;
  virtual void clear(size_t elements) = 0;
  virtual void run(size_t elements) = 0;
  // After load() and one run(): the number of wrong elements.
  virtual uint64_t wrong(size_t elements) const = 0;
  virtual void close() = 0;

 protected:
  const Host& host_;
  Board& board_;
  const size_t rank_;
  const size_t ranks_;
};

struct CollectiveKind {
  std::string_view name;  // on the command line
  std::string_view title;
  std::string_view reduction;
  std::string_view operation;  // as `pacecar predict` names them
  std::string_view algorithm;
  int turns;             // bus bytes / (buffer * (ranks - 1) / ranks)
  bool divided = false;  // NCCL's count is the elements for one peer, not of the buffer
  // Connects: every rank has to call it. `capacity`: the largest buffer, in elements.
  std::unique_ptr<Collective> (*make)(const Host& host, Board& board, int rank, size_t capacity);

  size_t count(size_t elements, int ranks) const {
    return divided ? elements / static_cast<size_t>(ranks) : elements;
  }
  size_t least_buffer_bytes(int ranks) const {
    return sizeof(float) * (divided ? static_cast<size_t>(ranks) : 1);
  }
};

// Not empty.
std::span<const CollectiveKind> collectives();

}  // namespace pacecar::nccl
