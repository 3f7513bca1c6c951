#include "bench/nccl/ring.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>

#include "bench/nccl/value_or_throw.h"

namespace pacecar::nccl {
namespace {

std::span<uint8_t> bytes_of(std::span<float> elements) {
  return {reinterpret_cast<uint8_t*>(elements.data()), elements.size_bytes()};
}

}  // namespace

Ring::Ring(const Host& host, Board& board, int rank, size_t capacity)
    : host_(host),
      board_(board),
      rank_(static_cast<size_t>(rank)),
      ranks_(static_cast<size_t>(board.ranks())),
      data_(capacity),
      scratch_(kWindow * kSliceElements) {
  connect_neighbours();
  send_memory_.emplace(host_, ends_.send, bytes_of(data_));
  scratch_memory_.emplace(host_, ends_.receive, bytes_of(scratch_));
}

void Ring::connect_neighbours() {
  const Listening listening = host_.listen();
  board_.handles[rank_] = listening.handle;
  value_or_throw(board_.barrier());
  HandleBytes next = board_.handles[(rank_ + 1) % ranks_];
  // Both at once: each rank's connect waits for the next rank's accept, all around the ring.
  while (!host_.try_both(next, listening.comm, &ends_)) {
    value_or_throw(board_.others_are_well());
    sched_yield();
  }
  host_.close_listen(listening.comm);
}

void Ring::close() {
  send_memory_->deregister();
  scratch_memory_->deregister();
  host_.close(ends_);
}

void Ring::all_reduce(size_t count) {
  plan(count);
  while (receives_.done < total_ || sends_.done < total_) {
    bool progress = false;
    for (const auto step :
         {&Ring::post_receive, &Ring::post_send, &Ring::finish_receive, &Ring::finish_send}) {
      progress |= (this->*step)();
    }
    if (progress) continue;
    value_or_throw(board_.others_are_well());
    sched_yield();
  }
}

void Ring::plan(size_t count) {
  count_ = count;
  const size_t longest_segment = (count + ranks_ - 1) / ranks_;
  slices_per_step_ = std::max<size_t>(1, (longest_segment + kSliceElements - 1) / kSliceElements);
  total_ = 2 * (ranks_ - 1) * slices_per_step_;
  sends_ = Stream();
  receives_ = Stream();
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
  const size_t index = receives_.posted;
  if (index == total_ || !receives_.window_open()) return false;
  return receives_.post(
      host_.try_receive(ends_.receive, {bytes_of(scratch(index)), 0, scratch_memory_->memory()}));
}

bool Ring::post_send() {
  const size_t index = sends_.posted;
  if (index == total_ || !sends_.window_open()) return false;
  if (index >= slices_per_step_ && receives_.done <= index - slices_per_step_) return false;
  return sends_.post(
      host_.try_send(ends_.send, {bytes_of(outgoing(index)), 0, send_memory_->memory()}));
}

bool Ring::finish_receive() {
  const size_t index = receives_.done;
  // A result overwrites what was sent one turn of the ring before.
  const size_t turn = (ranks_ - 1) * slices_per_step_;
  if (!reduces(index) && sends_.done <= index - turn) return false;
  std::array<int, 1> size{};
  if (index == receives_.posted || !host_.test(receives_.request(index), size)) return false;
  const std::span<float> target = incoming(index);
  if (static_cast<size_t>(size.front()) != target.size_bytes()) {
    throw HostError(
        fmt::format("received {} bytes where {} were due", size.front(), target.size_bytes()));
  }
  const std::span<const float> came = scratch(index);
  if (reduces(index)) {
    std::transform(target.begin(), target.end(), came.begin(), target.begin(), std::plus<>());
  } else {
    std::ranges::copy(came, target.begin());
  }
  ++receives_.done;
  return true;
}

bool Ring::finish_send() {
  std::array<int, 1> size{};
  if (sends_.done == sends_.posted || !host_.test(sends_.request(sends_.done), size)) return false;
  ++sends_.done;
  return true;
}

}  // namespace pacecar::nccl
