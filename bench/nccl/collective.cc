#include "bench/nccl/collective.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "bench/nccl/link.h"

namespace pacecar::nccl {
namespace {

// Common to the all-reduces: buffers with known sums.
class AllReduce : public Collective {
 public:
  AllReduce(const Host& host, Board& board, int rank, size_t capacity)
      : Collective(host, board, rank), data_(capacity) {}

  void load(size_t elements) final {
    for (size_t i = 0; i < elements; ++i) data_[i] = element(i, rank_);
  }
  void clear(size_t elements) final { std::fill_n(data_.begin(), elements, 0.0F); }
  uint64_t wrong(size_t elements) const final {
    uint64_t wrong = 0;
    for (size_t i = 0; i < elements; ++i) {
      float sum = 0;
      for (size_t rank = 0; rank < ranks_; ++rank) sum += element(i, rank);
      wrong += data_[i] != sum;
    }
    return wrong;
  }

 protected:
  static constexpr size_t kSliceElements = 1 << 17;  // 512 KiB

  std::vector<float> data_;

 private:
  // Small whole numbers, so that every sum is exact and has one right answer.
  static float element(size_t index, size_t rank) {
    return static_cast<float>((index * 7 + rank * 13 + 1) % 61);
  }
};

// A ring all-reduce, pipelined as NCCL's: sums travel once around the ring in N-1 steps, then the
// results do in N-1 steps.
//
// A step has a fixed number of slices. A rank sends its slices in the order of the steps; a slice
// may be sent when the same slice of the step before it has been received. As in NCCL, receives are
// posted ahead, into buffers of their own, from which the data is added or copied.
class Ring final : public AllReduce {
 public:
  Ring(const Host& host, Board& board, int rank, size_t capacity)
      : AllReduce(host, board, rank, capacity),
        scratch_(kWindow * kSliceElements),
        link_(host, board, rank_, 1, data_, scratch_) {}

  // Replaces the elements by their sums over all ranks.
  void run(size_t elements) override {
    plan(elements);
    const auto done = [this] {
      return link_.receives.done() == total_ && link_.sends.done() == total_;
    };
    until(board_, done, [this] {
      bool progress = link_.post_receive(host_, total_, [this](size_t i) { return scratch(i); });
      progress |= link_.post_send(host_, sendable(), [this](size_t i) { return outgoing(i); });
      progress |= finish_receive();
      progress |= link_.sends.finish_send(host_);
      return progress;
    });
  }

  void close() override { link_.close(host_); }

 private:
  static constexpr size_t kWindow = RequestStream::kWindow;
  void plan(size_t count) {
    count_ = count;
    const size_t longest_segment = (count + ranks_ - 1) / ranks_;
    slices_per_step_ = std::max<size_t>(1, (longest_segment + kSliceElements - 1) / kSliceElements);
    total_ = 2 * (ranks_ - 1) * slices_per_step_;
    link_.begin();
  }
  bool reduces(size_t slice) const { return slice < (ranks_ - 1) * slices_per_step_; }
  // The part of data() that slice `index` of the outgoing or incoming stream covers.
  std::span<float> part(size_t index, size_t first_segment) {
    const size_t step = index / slices_per_step_;
    const size_t segment = (first_segment + 2 * ranks_ - step) % ranks_;
    const size_t segment_end = (segment + 1) * count_ / ranks_;
    const size_t begin = segment * count_ / ranks_ + (index % slices_per_step_) * kSliceElements;
    if (begin >= segment_end) return {};
    return std::span(data_).subspan(begin, std::min(kSliceElements, segment_end - begin));
  }
  std::span<float> outgoing(size_t index) { return part(index, rank_); }
  std::span<float> incoming(size_t index) { return part(index, rank_ + ranks_ - 1); }
  std::span<float> scratch(size_t index) {
    return std::span(scratch_).subspan((index % kWindow) * kSliceElements, incoming(index).size());
  }

  // The slices of the first step, and those whose data has been received one step before.
  size_t sendable() const { return std::min(total_, link_.receives.done() + slices_per_step_); }
  bool finish_receive() {
    const size_t index = link_.receives.done();
    // A result overwrites the slice that was sent one turn of the ring before.
    const size_t turn = (ranks_ - 1) * slices_per_step_;
    if (!reduces(index) && link_.sends.done() <= index - turn) return false;
    const std::span<float> target = incoming(index);
    if (!link_.receives.finish_receive(host_, target.size_bytes())) return false;
    const std::span<const float> received = scratch(index);
    if (reduces(index)) {
      std::ranges::transform(target, received, target.begin(), std::plus<>());
    } else {
      std::ranges::copy(received, target.begin());
    }
    return true;
  }

  std::vector<float> scratch_;
  Link link_;

  // Of the operation that runs.
  size_t count_ = 0;
  size_t slices_per_step_ = 0;
  size_t total_ = 0;  // slices each way
};

// A tree all-reduce, pipelined: sums go up slice by slice to rank 0, results come down the same
// way. The children of rank R are ranks 2R + 1 and 2R + 2. Receives are posted ahead, into buffers
// of their own.
class Tree final : public AllReduce {
 public:
  Tree(const Host& host, Board& board, int rank, size_t capacity)
      : AllReduce(host, board, rank, capacity) {
    for (size_t distance = 1; distance < ranks_; ++distance) {
      auto& scratch = scratch_.emplace_back(RequestStream::kWindow * kSliceElements);
      links_.emplace_back(host, board, rank_, distance, data_, scratch);
    }
    if (!root()) parent_.push_back(neighbour((rank_ - 1) / 2));
    for (size_t child = 2 * rank_ + 1; child < std::min(2 * rank_ + 3, ranks_); ++child) {
      children_.push_back(neighbour(child));
    }
  }

  void run(size_t elements) override {
    count_ = elements;
    total_ = std::max<size_t>(1, (elements + kSliceElements - 1) / kSliceElements);
    for (Link& link : links_) link.begin();
    until(
        board_, [this] { return done(); }, [this] { return advance(); });
  }
  void close() override {
    for (Link& link : links_) link.close(host_);
  }

 private:
  // Another rank with the connections to it and from it.
  struct Neighbour {
    Link& out;
    Link& in;
    std::vector<float>& scratch;  // for received slices
  };

  bool root() const { return rank_ == 0; }
  Neighbour neighbour(size_t rank) {
    const size_t there = (rank + ranks_ - rank_) % ranks_ - 1;
    const size_t back = ranks_ - 2 - there;
    return {links_[there], links_[back], scratch_[back]};
  }
  std::span<float> slice(size_t index) {
    const size_t begin = index * kSliceElements;
    return std::span(data_).subspan(begin, std::min(kSliceElements, count_ - begin));
  }
  bool receive(Neighbour& from, bool result) {
    RequestStream& receives = from.in.receives;
    const auto place = [&](size_t index) {
      return std::span(from.scratch)
          .subspan(index % RequestStream::kWindow * kSliceElements, slice(index).size());
    };
    const bool progress = from.in.post_receive(host_, total_, place);
    const size_t index = receives.done();
    if (index == total_) return progress;
    // A result overwrites the sum that was sent.
    if (result && from.out.sends.done() <= index) return progress;
    const std::span<float> own = slice(index);
    if (!receives.finish_receive(host_, own.size_bytes())) return progress;
    if (result) {
      std::ranges::copy(place(index), own.begin());
    } else {
      std::ranges::transform(own, place(index), own.begin(), std::plus<>());
    }
    return true;
  }

  bool send(Neighbour& to, size_t ready) {
    const bool progress =
        to.out.post_send(host_, ready, [this](size_t index) { return slice(index); });
    return to.out.sends.finish_send(host_) || progress;
  }

  // The slices that hold the sum of this rank and all ranks below it.
  size_t summed() const {
    size_t least = total_;
    for (const Neighbour& child : children_) least = std::min(least, child.in.receives.done());
    return least;
  }
  bool advance() {
    bool progress = false;
    for (Neighbour& child : children_) progress |= receive(child, false);
    for (Neighbour& parent : parent_) {
      progress |= send(parent, summed());
      progress |= receive(parent, true);
    }
    const size_t results = root() ? summed() : parent_[0].in.receives.done();
    for (Neighbour& child : children_) progress |= send(child, results);
    return progress;
  }

  bool done() const {
    const auto ended = [this](const Neighbour& one) {
      return one.out.sends.done() == total_ && one.in.receives.done() == total_;
    };
    return std::ranges::all_of(parent_, ended) && std::ranges::all_of(children_, ended);
  }

  std::deque<std::vector<float>> scratch_;  // by distance around the ring of ranks, from 1
  std::deque<Link> links_;                  // likewise
  std::vector<Neighbour> parent_;           // none, or one
  std::vector<Neighbour> children_;
  size_t count_ = 0;  // elements of the operation that runs
  size_t total_ = 0;  // its slices
};

// An all-to-all, as NCCL does grouped sends and receives: each rank has a connection to and one
// from each other rank, all in use at once and tested in turn. A message goes in slices, a few of
// which are in flight, from the sender's buffer into the receiver's.
class AllToAll final : public Collective {
 public:
  AllToAll(const Host& host, Board& board, int rank, size_t capacity)
      : Collective(host, board, rank), given_(capacity), taken_(capacity) {
    for (size_t distance = 1; distance < ranks_; ++distance) {
      links_.emplace_back(host, board, rank_, distance, given_, taken_);
    }
  }

  void load(size_t elements) override {
    clear(elements);
    const size_t part = elements / ranks_;
    for (size_t i = 0; i < part * ranks_; ++i) given_[i] = element(i % part, rank_, i / part);
  }
  void clear(size_t elements) override {
    std::fill_n(given_.begin(), elements, 0.0F);
    std::fill_n(taken_.begin(), elements, -1.0F);
  }
  void run(size_t elements) override {
    part_ = elements / ranks_;
    for (Link& link : links_) link.begin();
    std::copy_n(given_.begin() + static_cast<ptrdiff_t>(rank_ * part_), part_,
                taken_.begin() + static_cast<ptrdiff_t>(rank_ * part_));
    const auto finished = [this](const Link& link) {
      return link.sends.done() == slices() && link.receives.done() == slices();
    };
    const auto done = [&] { return std::ranges::all_of(links_, finished); };
    until(board_, done, [this] {
      bool progress = false;
      for (Link& link : links_) progress |= advance(link);
      return progress;
    });
  }

  uint64_t wrong(size_t elements) const override {
    const size_t part = elements / ranks_;
    uint64_t wrong = 0;
    for (size_t i = 0; i < part * ranks_; ++i)
      wrong += taken_[i] != element(i % part, i / part, rank_);
    return wrong;
  }
  void close() override {
    for (Link& link : links_) link.close(host_);
  }

 private:
  static constexpr size_t kSliceElements = 1 << 15;  // 128 KiB, as NCCL's over a network

  // Element `index` of what `from` has for `to`.
  static float element(size_t index, size_t from, size_t to) {
    return static_cast<float>((index * 7 + from * 131 + to * 1031 + 1) % 65521);
  }
  size_t slices() const { return (part_ + kSliceElements - 1) / kSliceElements; }
  // Slice `index` of the part of `buffer` that is for `peer` or from it; empty beyond its end.
  std::span<float> slice(std::vector<float>& buffer, size_t peer, size_t index) const {
    const size_t begin = std::min(index * kSliceElements, part_);
    const size_t length = std::min(kSliceElements, part_ - begin);
    return std::span(buffer).subspan(peer * part_ + begin, length);
  }
  bool advance(Link& link) {
    const auto incoming = [&](size_t index) { return slice(taken_, link.from, index); };
    const auto outgoing = [&](size_t index) { return slice(given_, link.to, index); };
    bool progress = link.post_receive(host_, slices(), incoming);
    progress |= link.post_send(host_, slices(), outgoing);
    const size_t due = incoming(link.receives.done()).size_bytes();
    progress |= link.receives.finish_receive(host_, due);
    progress |= link.sends.finish_send(host_);
    return progress;
  }

  std::vector<float> given_;  // one part for each rank
  std::vector<float> taken_;  // one part from each rank
  std::deque<Link> links_;    // one for each distance around the ring
  size_t part_ = 0;           // elements, of the operation that runs
};

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
