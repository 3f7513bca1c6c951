// The records of all communicators of this process, and NCCL's contexts and event handles.
//
// Both are numbers in place of pointers. NCCL's proxy thread may pass those of another process (a
// rank that sends for its neighbours), of a finalized communicator, or garbage: a number is looked
// up, never dereferenced, and an unknown one is ignored. So every call is safe, none waits, and
// only open() allocates.
//
// Thread rule: any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "net_plugin/profiler/record.h"

namespace pacecar::profiler {

using Clock = uint64_t (*)();  // nanoseconds
uint64_t monotonic_ns();

class Recorder {
 public:
  static constexpr size_t kMaxCommunicators = 64;

  explicit Recorder(Clock clock) : clock_(clock) {}

  // A context; nullptr: too many communicators.
  void* open(const Identity& identity);
  void close(void* context);

  // A handle; nullptr: unknown context. An unknown parent counts as none.
  void* start(void* context, const Description& what, void* parent);
  void stop(void* handle);
  void wait(void* handle, Wait wait, uint64_t bytes);
  void add_bytes(void* handle, uint64_t bytes);
  void identify(void* context, uint64_t communicator, int32_t rank);

  // Of the communicators that are open.
  std::vector<const Record*> records() const;
  uint64_t now_ns() const { return clock_(); }

 private:
  struct Place {
    std::unique_ptr<Record> record;       // from the first use on; guarded by mutex_ until then
    std::atomic<uint32_t> generation{0};  // odd: open
  };

  Record* record_of(const void* number) const;

  const Clock clock_;
  mutable std::mutex mutex_;
  std::array<Place, kMaxCommunicators> places_;
};

// The process's; never destroyed, since NCCL's threads may still call while the process ends.
Recorder& recorder();

}  // namespace pacecar::profiler
