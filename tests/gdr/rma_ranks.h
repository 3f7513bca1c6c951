// Ranks of a group in one process, over the software NIC, with windows in host memory or in GPU
// memory that the NIC does not reach.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/support/fake_gpu.h"
#include "tests/support/waiting.h"
#include "transport/base/fresh_pages.h"
#include "transport/rma/group.h"

namespace pacecar::test {

template <typename Step>
void step_until(const char* what, Step step) {
  const Waiting waiting;
  while (!step()) {
    if (waiting.hangs()) throw std::runtime_error(what);
    sched_yield();  // no sleep: all ranks make progress in this thread only
  }
}

// The value of `result`; throws its error's message if there is none.
template <typename Value>
Value value_of(Result<Value> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

// One rank's memory of a window, on the host or on a GPU.
class RankMemory {
 public:
  RankMemory(const FakeGpu& gpu, size_t bytes, bool on_gpu) : gpu_(gpu), bytes_(bytes) {
    if (on_gpu) {
      device_ = std::make_unique<GpuBuffer>(gpu, bytes);
    } else {
      host_ = std::make_unique<OwnPages<uint8_t>>(bytes);
    }
  }

  MemoryRange range() const {
    return {.address = data(),
            .length = bytes_,
            .kind = device_ ? MemoryKind::kCuda : MemoryKind::kHost};
  }
  std::vector<uint8_t> read(size_t offset, size_t size) const {
    if (device_) return gpu_.read(data() + offset, size);
    return {data() + offset, data() + offset + size};
  }
  void write(std::span<const uint8_t> from, size_t offset = 0) const {
    if (device_) return device_->write(from, offset);
    std::ranges::copy(from, data() + offset);
  }
  uint64_t word(size_t offset) const {
    if (!device_) return std::atomic_ref(*reinterpret_cast<uint64_t*>(data() + offset)).load();
    uint64_t value = 0;
    std::memcpy(&value, read(offset, sizeof value).data(), sizeof value);
    return value;
  }

 private:
  uint8_t* data() const { return device_ ? device_->data() : host_->data(); }

  const FakeGpu& gpu_;
  const size_t bytes_;
  std::unique_ptr<OwnPages<uint8_t>> host_;
  std::unique_ptr<GpuBuffer> device_;
};

// A window of all ranks: each rank's memory and handle.
struct RankWindow {
  std::vector<std::unique_ptr<RankMemory>> memory;
  std::vector<rma::SharedWindow*> shared;

  rma::Location at(size_t rank, uint64_t offset) const { return {shared[rank], offset}; }
};

class RmaRanks {
 public:
  explicit RmaRanks(size_t ranks) {
    const Options options{.settings = {{"PACECAR_NICS", "soft:udp:lo"}, {"PACECAR_GPU", "staged"}}};
    context_ = Context::open(options).value();
    std::vector<Handle> handles;
    for (size_t rank = 0; rank < ranks; ++rank) {
      listeners_.push_back(context_->listen(0).value());
      handles.push_back(listeners_.back()->handle());
    }
    groups_.resize(ranks);
    of_each([&](size_t rank) {
      groups_[rank] =
          rma::Group::join(context_, 0, *listeners_[rank], handles, rank, 1, {}).value();
    });
  }

  const FakeGpu& gpu() const { return gpu_; }
  rma::Group& operator[](size_t rank) const { return *groups_[rank]; }
  size_t size() const { return groups_.size(); }

  template <typename Body>
  void of_each(Body body) const {
    std::vector<std::future<void>> running;
    for (size_t rank = 0; rank < listeners_.size(); ++rank) {
      running.push_back(std::async(std::launch::async, body, rank));
    }
    for (auto& one : running) one.get();
  }

  // Shares a window; on_gpu(rank): the rank's memory is on a GPU.
  template <typename OnGpu>
  RankWindow share(size_t bytes, OnGpu on_gpu) const {
    RankWindow window;
    for (size_t rank = 0; rank < size(); ++rank) {
      window.memory.push_back(std::make_unique<RankMemory>(gpu_, bytes, on_gpu(rank)));
    }
    window.shared.resize(size());
    of_each([&](size_t rank) {
      window.shared[rank] = value_of(groups_[rank]->share(window.memory[rank]->range()));
    });
    return window;
  }
  void unshare(const RankWindow& window) const {
    for (size_t rank = 0; rank < size(); ++rank) {
      if (groups_[rank] != nullptr) groups_[rank]->unshare(window.shared[rank]);
    }
  }
  void leave(size_t rank) { groups_[rank].reset(); }

  void progress() const {
    for (const auto& group : groups_) {
      if (group != nullptr) group->progress();
    }
  }
  // The operation's result; nullopt: it is not done.
  static std::optional<Result<void>> ended(rma::Group& group, rma::Operation* operation) {
    const auto tested = group.test(operation);
    if (!tested) return Result<void>(tl::unexpected(tested.error()));
    return *tested ? std::optional(Result<void>()) : std::nullopt;
  }
  Result<void> result_of(size_t rank, const Result<rma::Operation*>& started) const {
    if (!started) return tl::unexpected(started.error());
    std::optional<Result<void>> result;
    step_until("an operation", [&] {
      progress();
      return (result = ended(*groups_[rank], *started)).has_value();
    });
    return *result;
  }
  void finish(size_t rank, const Result<rma::Operation*>& started) const {
    const auto result = result_of(rank, started);
    if (!result) throw std::runtime_error(result.error().message);
  }
  void await(const RankMemory& memory, size_t offset, uint64_t value) const {
    step_until("a signal", [&] {
      progress();
      return memory.word(offset) == value;
    });
  }
  void hold(bool held) const {
    gpu_.with([held](FakeCuda& cuda) { cuda.copies_wait = held; });
  }

 private:
  const FakeGpu gpu_{FAKE_CUDA};
  std::shared_ptr<Context> context_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::vector<std::unique_ptr<rma::Group>> groups_;
};

inline std::vector<uint8_t> pattern_of(size_t size, uint64_t seed) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(seed * 31 + i * 7 + i / 251);
  return bytes;
}

}  // namespace pacecar::test
