#include "bench/nccl/all_to_all.h"

#include <algorithm>

#include "bench/nccl/until.h"

namespace pacecar::nccl {

AllToAll::AllToAll(const Host& host, Board& board, int rank, size_t capacity)
    : Collective(host, board, rank), given_(capacity), taken_(capacity) {
  for (size_t distance = 1; distance < ranks_; ++distance) {
    links_.emplace_back(host, board, rank_, distance, given_, taken_);
  }
}

void AllToAll::close() {
  for (Link& link : links_) link.close(host_);
}

void AllToAll::load(size_t elements) {
  clear(elements);
  const size_t part = elements / ranks_;
  for (size_t i = 0; i < part * ranks_; ++i) given_[i] = element(i % part, rank_, i / part);
}

void AllToAll::clear(size_t elements) {
  std::fill_n(given_.begin(), elements, 0.0F);
  std::fill_n(taken_.begin(), elements, -1.0F);
}

uint64_t AllToAll::wrong(size_t elements) const {
  const size_t part = elements / ranks_;
  uint64_t wrong = 0;
  for (size_t i = 0; i < part * ranks_; ++i)
    wrong += taken_[i] != element(i % part, i / part, rank_);
  return wrong;
}

void AllToAll::run(size_t elements) {
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

std::span<uint8_t> AllToAll::slice(std::vector<float>& all, size_t peer, size_t index) const {
  const size_t begin = std::min(index * kSliceElements, part_);
  const size_t length = std::min(kSliceElements, part_ - begin);
  return bytes_of(std::span(all).subspan(peer * part_ + begin, length));
}

bool AllToAll::advance(Link& link) {
  bool progress = false;
  if (link.receives.may_post(slices())) {
    const auto data = slice(taken_, link.from, link.receives.posted());
    progress |= link.receives.post(
        host_.try_receive(link.ends.receive, {data, 0, link.receive_memory.memory()}));
  }
  if (link.sends.may_post(slices())) {
    const auto data = slice(given_, link.to, link.sends.posted());
    progress |=
        link.sends.post(host_.try_send(link.ends.send, {data, 0, link.send_memory.memory()}));
  }
  const size_t due = slice(taken_, link.from, link.receives.done()).size();
  progress |= link.receives.finish_receive(host_, due);
  progress |= link.sends.finish_send(host_);
  return progress;
}

}  // namespace pacecar::nccl
