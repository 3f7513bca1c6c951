#include "bench/nccl/tree.h"

#include <algorithm>
#include <functional>

#include "bench/nccl/until.h"

namespace pacecar::nccl {

Tree::Tree(const Host& host, Board& board, int rank, size_t capacity)
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

void Tree::close() {
  for (Link& link : links_) link.close(host_);
}

Tree::Neighbour Tree::neighbour(size_t rank) {
  const size_t there = (rank + ranks_ - rank_) % ranks_ - 1;
  const size_t back = ranks_ - 2 - there;
  return {links_[there], links_[back], scratch_[back]};
}

void Tree::run(size_t elements) {
  count_ = elements;
  total_ = std::max<size_t>(1, (elements + kSliceElements - 1) / kSliceElements);
  for (Link& link : links_) link.begin();
  until(
      board_, [this] { return done(); }, [this] { return advance(); });
}

std::span<float> Tree::slice(size_t index) {
  const size_t begin = index * kSliceElements;
  return std::span(data_).subspan(begin, std::min(kSliceElements, count_ - begin));
}

size_t Tree::summed() const {
  size_t least = total_;
  for (const Neighbour& child : children_) least = std::min(least, child.in.receives.done());
  return least;
}

bool Tree::advance() {
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

bool Tree::done() const {
  const auto ended = [this](const Neighbour& one) {
    return one.out.sends.done() == total_ && one.in.receives.done() == total_;
  };
  return std::ranges::all_of(parent_, ended) && std::ranges::all_of(children_, ended);
}

bool Tree::send(Neighbour& to, size_t ready) {
  RequestStream& sends = to.out.sends;
  bool progress = false;
  if (sends.may_post(ready)) {
    progress = sends.post(host_.try_send(
        to.out.ends.send, {bytes_of(slice(sends.posted())), 0, to.out.send_memory.memory()}));
  }
  return sends.finish_send(host_) || progress;
}

bool Tree::receive(Neighbour& from, bool result) {
  RequestStream& receives = from.in.receives;
  const auto place = [&](size_t index) {
    return std::span(from.scratch)
        .subspan(index % RequestStream::kWindow * kSliceElements, slice(index).size());
  };
  bool progress = false;
  if (receives.may_post(total_)) {
    progress = receives.post(host_.try_receive(
        from.in.ends.receive,
        {bytes_of(place(receives.posted())), 0, from.in.receive_memory.memory()}));
  }
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

}  // namespace pacecar::nccl
