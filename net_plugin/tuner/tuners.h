// The tuners of this process's communicators, and what NCCL holds of them: contexts. A context is a
// number in the place of a pointer: it is looked up, never followed, so that calls after finalize,
// or with garbage, do nothing.
//
// Thread rule: any thread; a communicator is not closed while it is used, which NCCL sees to.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "net_plugin/tuner/tuner.h"

namespace pacecar::tuner {

// One communicator's.
struct Tuning {
  Tuning(Tuner what, bool only_observes) : tuner(std::move(what)), observes(only_observes) {}

  const Tuner tuner;
  const bool observes;  // tells what it would choose, and leaves the choice to NCCL
  // By function: a bit for each power of two of bytes that was told.
  std::array<std::atomic<uint64_t>, nccl::kTunedFunctions> logged{};
};

class Tuners {
 public:
  static constexpr size_t kMost = 256;

  // A context; nullptr where there are as many as there may be.
  void* open(std::unique_ptr<Tuning> tuning);
  void close(void* context);
  // nullptr: the context is none of ours. Reads memory, no more.
  Tuning* find(const void* context) const;

 private:
  struct Place {
    std::unique_ptr<Tuning> tuning;       // guarded by mutex_ while it changes
    std::atomic<uint32_t> generation{0};  // odd: open
  };

  mutable std::mutex mutex_;
  std::array<Place, kMost> places_;
};

// The process's; never destroyed: NCCL's threads may call while the process ends.
Tuners& tuners();

}  // namespace pacecar::tuner
