// The records of all communicators of this process, and NCCL's contexts and event handles. Both are
// numbers in place of pointers. NCCL's proxy thread may pass numbers of another process (a rank
// that sends for its neighbours), of a finalized communicator, or garbage: a number is looked up,
// never dereferenced, and an unknown one is ignored. Numbers are not reused. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "net_plugin/profiler/record.h"

namespace pacecar::profiler {

using Clock = uint64_t (*)();  // nanoseconds
uint64_t monotonic_ns();

class Recorder {
 public:
  static constexpr size_t kMaxCommunicators = 64;  // open at a time

  explicit Recorder(Clock clock) : clock_(clock) {}

  void* open(const Identity& identity);  // A context; nullptr: too many communicators.
  void close(const void* context);

  // A handle; nullptr: unknown context. An unknown parent counts as none.
  void* start(const void* context, const Description& what, const void* parent);
  void stop(const void* handle);
  void wait(const void* handle, Wait wait, uint64_t bytes);

  // The records of the open communicators.
  std::vector<std::shared_ptr<const Record>> records() const;
  uint64_t now_ns() const { return clock_(); }

 private:
  // The record of a context or handle; nullptr: its communicator is not open.
  std::shared_ptr<Record> record_of(const void* number) const;

  const Clock clock_;
  mutable std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Record>> records_;  // by communicator's number
  uint64_t last_ = 0;
};

// The recorder of the process; never destroyed, since NCCL's threads may call while it ends.
Recorder& recorder();

}  // namespace pacecar::profiler
