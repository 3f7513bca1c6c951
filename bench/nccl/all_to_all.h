// An all-to-all over a net plugin, as NCCL does grouped sends and receives: each rank has a
// connection to and one from each other rank, all of them in use at once and asked after in turn. A
// message goes in slices, a few of which are in flight, from the one buffer into the other.
//
// Errors are thrown. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "bench/nccl/collective.h"
#include "bench/nccl/link.h"

namespace pacecar::nccl {

class AllToAll final : public Collective {
 public:
  AllToAll(const Host& host, Board& board, int rank, size_t capacity);

  void load(size_t elements) override;
  void clear(size_t elements) override;
  void run(size_t elements) override;
  uint64_t wrong(size_t elements) const override;
  void close() override;

 private:
  static constexpr size_t kSliceElements = 1 << 15;  // 128 KiB, as NCCL's over a network

  // Element `index` of what `from` has for `to`.
  static float element(size_t index, size_t from, size_t to) {
    return static_cast<float>((index * 7 + from * 131 + to * 1031 + 1) % 65521);
  }
  size_t slices() const { return (part_ + kSliceElements - 1) / kSliceElements; }
  // Of the part of `all` that is for `peer` or from it; nothing beyond its end.
  std::span<uint8_t> slice(std::vector<float>& all, size_t peer, size_t index) const;
  bool advance(Link& link);

  std::vector<float> given_;  // a part for each rank
  std::vector<float> taken_;  // a part of each rank
  std::deque<Link> links_;    // one for each distance around the ring
  size_t part_ = 0;           // elements, of the operation that runs
};

}  // namespace pacecar::nccl
