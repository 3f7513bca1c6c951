// The tuners of this process's communicators by number, which NCCL holds as contexts. A number is
// looked up, never dereferenced, and never used again: a call after finalize, or with garbage,
// finds nothing.
//
// Thread rule: any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "net_plugin/tuner/tuner.h"

namespace pacecar::tuner {

// The tuner of one communicator.
struct Tuning {
  Tuning(Tuner what, bool only_observes) : tuner(std::move(what)), observes(only_observes) {}

  const Tuner tuner;
  const bool observes;  // logs its choice, and leaves the decision to NCCL
  // By function: a bit for each power of two of bytes that was logged.
  std::array<std::atomic<uint64_t>, nccl::kTunedFunctions> logged{};
};

class Tuners {
 public:
  void* open(std::shared_ptr<Tuning> tuning) {
    const std::lock_guard lock(mutex_);
    tunings_.emplace(++last_, std::move(tuning));
    return reinterpret_cast<void*>(last_);
  }
  void close(const void* context) {
    const std::lock_guard lock(mutex_);
    tunings_.erase(reinterpret_cast<uintptr_t>(context));
  }
  // nullptr: unknown context.
  std::shared_ptr<Tuning> find(const void* context) const {
    const std::lock_guard lock(mutex_);
    const auto found = tunings_.find(reinterpret_cast<uintptr_t>(context));
    return found == tunings_.end() ? nullptr : found->second;
  }

 private:
  mutable std::mutex mutex_;
  uintptr_t last_ = 0;
  std::map<uintptr_t, std::shared_ptr<Tuning>> tunings_;
};

}  // namespace pacecar::tuner
