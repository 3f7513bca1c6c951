// The tuners of this process's communicators, and NCCL's contexts of them. A context is a number in
// place of a pointer: it is looked up, never dereferenced, so calls after finalize, or with
// garbage, do nothing.
//
// Thread rule: any thread; NCCL does not close a communicator while it is used.
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
  const bool observes;  // logs its choice, and leaves the decision to NCCL
  // By function: a bit for each power of two of bytes that was logged.
  std::array<std::atomic<uint64_t>, nccl::kTunedFunctions> logged{};
};

class Tuners {
 public:
  static constexpr size_t kMost = 256;

  // A context; nullptr: too many.
  void* open(std::unique_ptr<Tuning> tuning);
  void close(void* context);
  // nullptr: unknown context.
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
