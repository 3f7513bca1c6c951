#include "bench/nccl/collective.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace pacecar::nccl {

Collective::Collective(const Host& host, Board& board, int rank, size_t distance, size_t capacity,
                       size_t received, Received buffers)
    : host_(host),
      board_(board),
      rank_(static_cast<size_t>(rank)),
      ranks_(static_cast<size_t>(board.ranks())),
      sent_(capacity),
      received_(buffers == Received::kShared ? received : distance * received) {
  for (size_t i = 1; i <= distance; ++i) {
    const size_t first = buffers == Received::kShared ? 0 : (i - 1) * received;
    links_.emplace_back(host, board, rank_, i, sent_,
                        std::span(received_).subspan(first, received));
  }
}

void Collective::run(size_t elements) {
  plan(elements);
  for (Link& link : links_) link.begin();
  until(
      board_, [this] { return done(); }, [this] { return advance(); });
}

bool Collective::done() const {
  return std::ranges::all_of(links_, [this](const Link& link) { return link.done(total_); });
}

void Collective::close() {
  for (Link& link : links_) link.close(host_);
}

namespace {

constexpr size_t kWindow = RequestStream::kWindow;

// Common to the all-reduces: buffers with known sums. As in NCCL, receives are posted ahead, into
// buffers of their own, from which the data is added or copied.
class AllReduce : public Collective {
 public:
  AllReduce(const Host& host, Board& board, int rank, size_t distance, size_t capacity)
      : Collective(host, board, rank, distance, capacity, kWindow * kSliceElements,
                   Received::kApart) {}

  void load(size_t elements) final {
    for (size_t i = 0; i < elements; ++i) sent_[i] = element(i, rank_);
  }
  void clear(size_t elements) final { std::fill_n(sent_.begin(), elements, 0.0F); }
  uint64_t wrong(size_t elements) const final {
    uint64_t wrong = 0;
    for (size_t i = 0; i < elements; ++i) {
      float sum = 0;
      for (size_t rank = 0; rank < ranks_; ++rank) sum += element(i, rank);
      wrong += sent_[i] != sum;
    }
    return wrong;
  }

 protected:
  static constexpr size_t kSliceElements = 1 << 17;  // 512 KiB

  static size_t slices(size_t elements) {
    return std::max<size_t>(1, (elements + kSliceElements - 1) / kSliceElements);
  }
  // Where the link at this distance receives its slice `index`, of this many elements.
  std::span<float> scratch(size_t distance, size_t index, size_t elements) {
    const size_t place = (distance - 1) * kWindow + index % kWindow;
    return std::span(received_).subspan(place * kSliceElements, elements);
  }
  // Finishes the link's oldest receive: `target` becomes the sum, or the result that was received.
  bool take(Link& link, std::span<const float> received, std::span<float> target, bool result) {
    if (!link.receives.finish_receive(host_, target.size_bytes())) return false;
    if (result) {
      std::ranges::copy(received, target.begin());
    } else {
      std::ranges::transform(target, received, target.begin(), std::plus<>());
    }
    return true;
  }

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
// may be sent when the same slice of the step before it has been received.
class Ring final : public AllReduce {
 public:
  Ring(const Host& host, Board& board, int rank, size_t capacity)
      : AllReduce(host, board, rank, 1, capacity) {}

 private:
  void plan(size_t elements) override {
    count_ = elements;
    slices_per_step_ = slices((elements + ranks_ - 1) / ranks_);
    total_ = 2 * (ranks_ - 1) * slices_per_step_;
  }
  bool advance() override {
    const auto outgoing = [this](size_t index) { return part(index, rank_); };
    const auto into = [this](size_t index) { return scratch(1, index, incoming(index).size()); };
    bool progress = link_.post_receive(host_, total_, into);
    // The slices of the first step, and those whose data has been received one step before.
    const size_t sendable = std::min(total_, link_.receives.done() + slices_per_step_);
    progress |= link_.post_send(host_, sendable, outgoing);
    progress |= finish_receive(into);
    progress |= link_.sends.finish_send(host_);
    return progress;
  }

  // The part of the buffer that slice `index` of the outgoing or incoming stream covers.
  std::span<float> part(size_t index, size_t first_segment) {
    const size_t step = index / slices_per_step_;
    const size_t segment = (first_segment + 2 * ranks_ - step) % ranks_;
    const size_t segment_end = (segment + 1) * count_ / ranks_;
    const size_t begin = segment * count_ / ranks_ + (index % slices_per_step_) * kSliceElements;
    if (begin >= segment_end) return {};
    return std::span(sent_).subspan(begin, std::min(kSliceElements, segment_end - begin));
  }
  std::span<float> incoming(size_t index) { return part(index, rank_ + ranks_ - 1); }

  template <typename Into>
  bool finish_receive(const Into& into) {
    const size_t index = link_.receives.done();
    // A result overwrites the slice that was sent one turn of the ring before.
    const size_t turn = (ranks_ - 1) * slices_per_step_;
    const bool result = index >= turn;
    if (result && link_.sends.done() <= index - turn) return false;
    return take(link_, into(index), incoming(index), result);
  }

  Link& link_ = links_.front();
  // Of the operation that runs.
  size_t count_ = 0;
  size_t slices_per_step_ = 0;
};

// A tree all-reduce, pipelined: sums go up slice by slice to rank 0, results come down the same
// way. The children of rank R are ranks 2R + 1 and 2R + 2.
class Tree final : public AllReduce {
 public:
  Tree(const Host& host, Board& board, int rank, size_t capacity)
      : AllReduce(host, board, rank, static_cast<size_t>(board.ranks()) - 1, capacity) {
    if (!root()) parent_.push_back(neighbour((rank_ - 1) / 2));
    for (size_t child = 2 * rank_ + 1; child < std::min(2 * rank_ + 3, ranks_); ++child) {
      children_.push_back(neighbour(child));
    }
  }

 private:
  // Another rank with the connections to it and from it.
  struct Neighbour {
    Link& out;
    Link& in;
    size_t distance;  // of the latter
  };

  bool root() const { return rank_ == 0; }
  Neighbour neighbour(size_t rank) {
    const size_t there = (rank + ranks_ - rank_) % ranks_;
    const size_t back = ranks_ - there;
    return {links_[there - 1], links_[back - 1], back};
  }
  void plan(size_t elements) override {
    count_ = elements;
    total_ = slices(elements);
  }
  std::span<float> slice(size_t index) {
    const size_t begin = index * kSliceElements;
    return std::span(sent_).subspan(begin, std::min(kSliceElements, count_ - begin));
  }
  bool receive(Neighbour& from, bool result) {
    const auto place = [&](size_t index) {
      return scratch(from.distance, index, slice(index).size());
    };
    const bool progress = from.in.post_receive(host_, total_, place);
    const size_t index = from.in.receives.done();
    if (index == total_) return progress;
    // A result overwrites the sum that was sent.
    if (result && from.out.sends.done() <= index) return progress;
    return take(from.in, place(index), slice(index), result) || progress;
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
  bool advance() override {
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

  bool done() const override {
    const auto ended = [this](const Neighbour& one) {
      return one.out.sends.done() == total_ && one.in.receives.done() == total_;
    };
    return std::ranges::all_of(parent_, ended) && std::ranges::all_of(children_, ended);
  }

  std::vector<Neighbour> parent_;  // none, or one
  std::vector<Neighbour> children_;
  size_t count_ = 0;  // elements of the operation that runs
};

// An all-to-all, as NCCL does grouped sends and receives: each rank has a connection to and one
// from each other rank, all in use at once and tested in turn. A message goes in slices, a few of
// which are in flight, from the sender's buffer into the receiver's. Each buffer has one part for
// each rank.
class AllToAll final : public Collective {
 public:
  AllToAll(const Host& host, Board& board, int rank, size_t capacity)
      : Collective(host, board, rank, static_cast<size_t>(board.ranks()) - 1, capacity, capacity,
                   Received::kShared) {}

  void load(size_t elements) override {
    clear(elements);
    const size_t part = elements / ranks_;
    for (size_t i = 0; i < part * ranks_; ++i) sent_[i] = element(i % part, rank_, i / part);
  }
  void clear(size_t elements) override {
    std::fill_n(sent_.begin(), elements, 0.0F);
    std::fill_n(received_.begin(), elements, -1.0F);
  }
  uint64_t wrong(size_t elements) const override {
    const size_t part = elements / ranks_;
    uint64_t wrong = 0;
    for (size_t i = 0; i < part * ranks_; ++i) {
      wrong += received_[i] != element(i % part, i / part, rank_);
    }
    return wrong;
  }

 private:
  static constexpr size_t kSliceElements = 1 << 15;  // 128 KiB, as NCCL's over a network

  // Element `index` of what `from` has for `to`.
  static float element(size_t index, size_t from, size_t to) {
    return static_cast<float>((index * 7 + from * 131 + to * 1031 + 1) % 65521);
  }
  void plan(size_t elements) override {
    part_ = elements / ranks_;
    total_ = (part_ + kSliceElements - 1) / kSliceElements;
    std::ranges::copy(std::span(sent_).subspan(rank_ * part_, part_),
                      received_.begin() + static_cast<ptrdiff_t>(rank_ * part_));
  }
  // Slice `index` of the part of `buffer` that is for `peer` or from it; empty beyond its end.
  std::span<float> slice(std::vector<float>& buffer, size_t peer, size_t index) const {
    const size_t begin = std::min(index * kSliceElements, part_);
    const size_t length = std::min(kSliceElements, part_ - begin);
    return std::span(buffer).subspan(peer * part_ + begin, length);
  }
  bool advance() override {
    bool progress = false;
    for (Link& link : links_) {
      const auto incoming = [&](size_t index) { return slice(received_, link.from, index); };
      progress |= link.post_receive(host_, total_, incoming);
      progress |=
          link.post_send(host_, total_, [&](size_t index) { return slice(sent_, link.to, index); });
      const size_t due = incoming(link.receives.done()).size_bytes();
      progress |= link.receives.finish_receive(host_, due);
      progress |= link.sends.finish_send(host_);
    }
    return progress;
  }

  size_t part_ = 0;  // elements, of the operation that runs
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
