#include "bench/nccl/ring.h"

#include <algorithm>

#include "bench/nccl/until.h"

namespace pacecar::nccl {

Ring::Ring(const Host& host, Board& board, int rank, size_t capacity)
    : AllReduce(host, board, rank, capacity),
      scratch_(kWindow * kSliceElements),
      link_(host, board, rank_, 1, data_, scratch_) {}

void Ring::close() { link_.close(host_); }

void Ring::run(size_t elements) {
  plan(elements);
  const auto done = [this] {
    return link_.receives.done() == total_ && link_.sends.done() == total_;
  };
  until(board_, done, [this] {
    bool progress = post_receive();
    progress |= post_send();
    progress |= finish_receive();
    progress |= link_.sends.finish_send(host_);
    return progress;
  });
}

void Ring::plan(size_t count) {
  count_ = count;
  const size_t longest_segment = (count + ranks_ - 1) / ranks_;
  slices_per_step_ = std::max<size_t>(1, (longest_segment + kSliceElements - 1) / kSliceElements);
  total_ = 2 * (ranks_ - 1) * slices_per_step_;
  link_.begin();
}

std::span<float> Ring::part(size_t index, size_t first_segment) {
  const size_t step = index / slices_per_step_;
  const size_t segment = (first_segment + 2 * ranks_ - step) % ranks_;
  const size_t segment_end = (segment + 1) * count_ / ranks_;
  const size_t begin = segment * count_ / ranks_ + (index % slices_per_step_) * kSliceElements;
  if (begin >= segment_end) return {};
  return std::span(data_).subspan(begin, std::min(kSliceElements, segment_end - begin));
}

std::span<float> Ring::scratch(size_t index) {
  return std::span(scratch_).subspan((index % kWindow) * kSliceElements, incoming(index).size());
}

bool Ring::post_receive() {
  const size_t index = link_.receives.posted();
  if (!link_.receives.may_post(total_)) return false;
  return link_.receives.post(host_.try_receive(
      link_.ends.receive, {bytes_of(scratch(index)), 0, link_.receive_memory.memory()}));
}

bool Ring::post_send() {
  const size_t index = link_.sends.posted();
  if (!link_.sends.may_post(total_)) return false;
  if (index >= slices_per_step_ && link_.receives.done() <= index - slices_per_step_) return false;
  return link_.sends.post(
      host_.try_send(link_.ends.send, {bytes_of(outgoing(index)), 0, link_.send_memory.memory()}));
}

bool Ring::finish_receive() {
  const size_t index = link_.receives.done();
  // A result overwrites what was sent one turn of the ring before.
  const size_t turn = (ranks_ - 1) * slices_per_step_;
  if (!reduces(index) && link_.sends.done() <= index - turn) return false;
  const std::span<float> target = incoming(index);
  if (!link_.receives.finish_receive(host_, target.size_bytes())) return false;
  const std::span<const float> came = scratch(index);
  if (reduces(index)) {
    std::transform(target.begin(), target.end(), came.begin(), target.begin(), std::plus<>());
  } else {
    std::ranges::copy(came, target.begin());
  }
  return true;
}

}  // namespace pacecar::nccl
