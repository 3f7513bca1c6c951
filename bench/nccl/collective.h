// A collective operation over a net plugin, on host buffers. Each rank's input is known, so that
// every element of the result can be checked.
//
// Sizes are the elements (floats) of a rank's buffer. Errors are thrown. Thread rule: one thread
// per rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "bench/nccl/board.h"
#include "bench/nccl/link.h"
#include "net_plugin/host/host.h"

namespace pacecar::nccl {

class Collective {
 public:
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;
  virtual ~Collective() = default;

  // Fills the buffers: load() with the values that wrong() expects, clear() with zeros, which stay
  // zeros however often the operation runs.
  virtual void load(size_t elements) = 0;
  virtual void clear(size_t elements) = 0;
  void run(size_t elements);
  // After load() and one run(): the number of wrong elements.
  virtual uint64_t wrong(size_t elements) const = 0;
  void close();

 protected:
  enum class Received { kApart, kShared };  // a buffer for each link, or one for all
  // Connects to the ranks up to `distance` places away around the ring. `capacity` elements may be
  // sent; `received` are the elements of a buffer that is received into. A link registers its own
  // only, as registered memory is limited.
  Collective(const Host& host, Board& board, int rank, size_t distance, size_t capacity,
             size_t received, Received buffers);

  // An operation begins.
  virtual void plan(size_t elements) = 0;
  // Posts and finishes what can be. False: nothing could be.
  virtual bool advance() = 0;
  virtual bool done() const;  // of an operation that uses all links

  const Host& host_;
  Board& board_;
  const size_t rank_;
  const size_t ranks_;
  std::vector<float> sent_;
  std::vector<float> received_;
  std::deque<Link> links_;  // by distance, from 1
  size_t total_ = 0;        // slices each way of a link, of the operation that runs
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
