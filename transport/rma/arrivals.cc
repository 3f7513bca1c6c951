#include "transport/rma/arrivals.h"

#include <algorithm>
#include <atomic>

#include "transport/base/return_if_error.h"

namespace pacecar::rma {

// Waits for copies to and from the scratch before it is freed.
Arrivals::~Arrivals() {
  for (const auto& gpu : gpus_) gpu->engine->wait();
}

void Arrivals::add(WindowId window, uint64_t offset, uint64_t value) {
  if (idle() && windows_.gpus().empty()) {
    std::atomic_ref(*windows_.own_word(window, offset)->at).fetch_add(value);
  } else {
    sums_[{window, offset}].value += value;
  }
}

Result<std::span<const Arrival>> Arrivals::advance() {
  if (idle()) return std::span<const Arrival>();
  if (phase_ == Phase::kNone) {
    phase_ = Phase::kRead;
    RETURN_IF_ERROR(begin());
  }
  ASSIGN_OR_RETURN(const auto passed, through());
  if (!passed) return std::span<const Arrival>();
  if (phase_ == Phase::kWrite) {
    phase_ = Phase::kNone;
    return std::span<const Arrival>();
  }
  ASSIGN_OR_RETURN(const auto writing, count());
  phase_ = writing ? Phase::kWrite : Phase::kNone;
  return std::span<const Arrival>(round_arrivals_);
}

void Arrivals::fail(const Error& why) {
  if (phase_ == Phase::kRead) {
    arrivals_.insert(arrivals_.end(), round_arrivals_.begin(), round_arrivals_.end());
  }
  for (const Arrival& arrival : arrivals_) {
    if (arrival.operation != nullptr) arrival.operation->fail(why);
  }
  arrivals_.clear();
  sums_.clear();
  phase_ = Phase::kNone;
}

Result<void> Arrivals::begin() {
  round_sums_.clear();
  round_arrivals_.clear();
  round_sums_.swap(sums_);
  round_arrivals_.swap(arrivals_);
  for (const WindowGpu& window : windows_.gpus()) {
    Gpu& gpu = gpu_of(window.engine);
    gpu.copying[static_cast<size_t>(CopyWay::kToDevice)] = true;  // deliveries so far
    if (window.direct == nullptr) continue;
    ASSIGN_OR_RETURN(const auto flush, context_->start_flush(nic_, window.direct, window.base));
    gpu.flush = flush;
  }
  size_t place = 0;
  for (auto& [at, sum] : round_sums_) {
    const auto word = windows_.own_word(at.first, at.second);
    sum.read = word && word->copies != nullptr;
    if (sum.read) {
      if (auto copied = copy(CopyWay::kToHost, *word, place); !copied) return copied;
    }
    ++place;
  }
  const auto followed = follow(CopyWay::kToDevice);
  return followed ? follow(CopyWay::kToHost) : followed;
}

// Whether all flushes and copies of the round have ended.
Result<bool> Arrivals::through() {
  for (const auto& gpu : gpus_) {
    if (gpu->flush) {
      const auto flushed = context_->flushed(nic_, *gpu->flush);
      if (!flushed || !*flushed) return flushed;
      gpu->flush.reset();
    }
    for (size_t way = 0; way < gpu->copies.size(); ++way) {
      if (!gpu->copying[way]) continue;
      const auto done = gpu->copies[way].done();
      if (!done || !*done) return done;
      gpu->copying[way] = false;
    }
  }
  return true;
}

// Skips words of windows that have been deregistered.
Result<bool> Arrivals::count() {
  bool writing = false;
  size_t place = 0;
  for (const auto& [at, sum] : round_sums_) {
    const size_t own_place = place++;
    const auto word = windows_.own_word(at.first, at.second);
    if (!word) continue;
    if (!sum.read) {
      std::atomic_ref(*word->at).fetch_add(sum.value);
      continue;
    }
    *scratch(own_place) += sum.value;
    RETURN_IF_ERROR(copy(CopyWay::kToDevice, *word, own_place));
    writing = true;
  }
  RETURN_IF_ERROR(follow(CopyWay::kToDevice));
  return writing;
}

Arrivals::Gpu& Arrivals::gpu_of(const std::shared_ptr<const CopyEngine>& engine) {
  const auto known = std::ranges::find_if(
      gpus_, [&](const std::unique_ptr<Gpu>& gpu) { return gpu->engine == engine; });
  if (known != gpus_.end()) return **known;
  gpus_.push_back(std::make_unique<Gpu>());
  gpus_.back()->engine = engine;
  return *gpus_.back();
}

Result<void> Arrivals::copy(CopyWay way, const Word& word, size_t place) {
  gpu_of(word.copies->engine()).copying[static_cast<size_t>(way)] = true;
  return word.copies->copy(way, word.at, scratch(place), sizeof(uint64_t));
}

// Records an event after the copies of all GPUs in that direction.
Result<void> Arrivals::follow(CopyWay way) {
  const auto index = static_cast<size_t>(way);
  for (const auto& gpu : gpus_) {
    if (!gpu->copying[index]) continue;
    if (auto recorded = gpu->copies[index].record(gpu->engine, way); !recorded) return recorded;
  }
  return {};
}

uint64_t* Arrivals::scratch(size_t place) const {
  return reinterpret_cast<uint64_t*>(scratch_->bytes().data()) + place;
}

}  // namespace pacecar::rma
