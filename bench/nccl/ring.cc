#include "bench/nccl/ring.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>

namespace pacecar::nccl {
namespace {

std::span<std::byte> bytes_of(std::span<float> elements) {
  return std::as_writable_bytes(elements);
}

}  // namespace

Ring::Ring(const Plugin& plugin, Board& board, int rank, size_t capacity)
    : plugin_(plugin),
      board_(board),
      rank_(static_cast<size_t>(rank)),
      ranks_(static_cast<size_t>(board.ranks())),
      data_(capacity),
      scratch_(kWindow * kSliceElements) {}

Result<std::unique_ptr<Ring>> Ring::connect(const Plugin& plugin, Board& board, int rank,
                                            size_t capacity) {
  std::unique_ptr<Ring> ring(new Ring(plugin, board, rank, capacity));
  return ring->connect_neighbours().and_then([&] { return ring->register_buffers(); }).map([&] {
    return std::move(ring);
  });
}

Result<void> Ring::connect_neighbours() {
  const auto listening = plugin_.listen(&board_.handles[rank_]);
  if (!listening) return tl::unexpected(listening.error());
  if (auto ok = board_.barrier(); !ok) return ok;
  HandleBytes next = board_.handles[(rank_ + 1) % ranks_];
  // Both at once: each rank's connect waits for the next rank's accept, all around the ring.
  while (send_comm_ == nullptr || receive_comm_ == nullptr) {
    if (send_comm_ == nullptr) {
      const auto comm = plugin_.try_connect(next);
      if (!comm) return tl::unexpected(comm.error());
      send_comm_ = *comm;
    }
    if (receive_comm_ == nullptr) {
      const auto comm = plugin_.try_accept(*listening);
      if (!comm) return tl::unexpected(comm.error());
      receive_comm_ = *comm;
    }
    if (auto ok = board_.others_are_well(); !ok) return ok;
    sched_yield();
  }
  return plugin_.close_listen(*listening);
}

Result<void> Ring::register_buffers() {
  const auto keep = [](void** to) { return [to](void* memory) { *to = memory; }; };
  return plugin_.register_memory(send_comm_, bytes_of(data_))
      .map(keep(&send_memory_))
      .and_then([&] { return plugin_.register_memory(receive_comm_, bytes_of(data_)); })
      .map(keep(&receive_memory_))
      .and_then([&] { return plugin_.register_memory(receive_comm_, bytes_of(scratch_)); })
      .map(keep(&scratch_memory_));
}

Result<void> Ring::close() {
  return plugin_.deregister_memory(send_comm_, send_memory_)
      .and_then([&] { return plugin_.deregister_memory(receive_comm_, receive_memory_); })
      .and_then([&] { return plugin_.deregister_memory(receive_comm_, scratch_memory_); })
      .and_then([&] { return plugin_.close_send(send_comm_); })
      .and_then([&] { return plugin_.close_receive(receive_comm_); });
}

Result<void> Ring::all_reduce(size_t count) {
  plan(count);
  while (receives_.done < total_ || sends_.done < total_) {
    bool progress = false;
    for (const auto step :
         {&Ring::post_receive, &Ring::post_send, &Ring::finish_receive, &Ring::finish_send}) {
      const Result<bool> moved = (this->*step)();
      if (!moved) return tl::unexpected(moved.error());
      progress |= *moved;
    }
    if (progress) continue;
    if (auto ok = board_.others_are_well(); !ok) return ok;
    sched_yield();
  }
  return {};
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

Result<bool> Ring::post_receive() {
  const size_t index = receives_.posted;
  if (index == total_ || !receives_.window_open()) return false;
  // A result overwrites what was sent one turn of the ring before.
  const size_t turn = (ranks_ - 1) * slices_per_step_;
  if (!reduces(index) && sends_.done <= index - turn) return false;
  const auto request =
      reduces(index) ? plugin_.receive(receive_comm_, bytes_of(scratch(index)), scratch_memory_)
                     : plugin_.receive(receive_comm_, bytes_of(incoming(index)), receive_memory_);
  return request.map([&](void* posted) {
    receives_.request(index) = posted;
    receives_.posted += posted != nullptr;
    return posted != nullptr;
  });
}

Result<bool> Ring::post_send() {
  const size_t index = sends_.posted;
  if (index == total_ || !sends_.window_open()) return false;
  if (index >= slices_per_step_ && receives_.done <= index - slices_per_step_) return false;
  return plugin_.send(send_comm_, bytes_of(outgoing(index)), send_memory_).map([&](void* posted) {
    sends_.request(index) = posted;
    sends_.posted += posted != nullptr;
    return posted != nullptr;
  });
}

Result<bool> Ring::finish_receive() {
  const size_t index = receives_.done;
  if (index == receives_.posted) return false;
  size_t bytes = 0;
  const Result<bool> done = plugin_.test(receives_.request(index), &bytes);
  if (!done || !*done) return done;
  const std::span<float> target = incoming(index);
  if (bytes != target.size_bytes()) {
    return fail(ErrorCode::kPeer,
                fmt::format("received {} bytes where {} were due", bytes, target.size_bytes()));
  }
  if (reduces(index)) {
    const std::span<const float> came = scratch(index);
    std::transform(target.begin(), target.end(), came.begin(), target.begin(), std::plus<>());
  }
  ++receives_.done;
  return true;
}

Result<bool> Ring::finish_send() {
  if (sends_.done == sends_.posted) return false;
  size_t bytes = 0;
  return plugin_.test(sends_.request(sends_.done), &bytes).map([&](bool done) {
    sends_.done += done;
    return done;
  });
}

}  // namespace pacecar::nccl
