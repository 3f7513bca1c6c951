#include "net_plugin/profiler/recorder.h"

#include <chrono>

namespace pacecar::profiler {
namespace {

// A handle has the communicator's number, counted from 1, in its low bits, then the event's id.
constexpr int kIdShift = 24;
constexpr uint64_t kMostNumbers = (1U << kIdShift) - 1;

uint64_t number_of(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }
void* pointer_of(uint64_t number) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(number));
}
uint64_t id_of(const void* pointer) { return number_of(pointer) >> kIdShift; }
uint64_t owner_of(const void* pointer) { return number_of(pointer) & kMostNumbers; }

}  // namespace

uint64_t monotonic_ns() {
  const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(now.count());
}

void* Recorder::open(const Identity& identity) {
  const std::lock_guard lock(mutex_);
  if (records_.size() == kMaxCommunicators || last_ == kMostNumbers) return nullptr;
  records_.emplace(last_ + 1, std::make_shared<Record>(identity));
  return pointer_of(++last_);
}

void Recorder::close(const void* context) {
  const std::lock_guard lock(mutex_);
  records_.erase(number_of(context));
}

std::shared_ptr<Record> Recorder::record_of(const void* number) const {
  const std::lock_guard lock(mutex_);
  const auto found = records_.find(owner_of(number));
  return found == records_.end() ? nullptr : found->second;
}

void* Recorder::start(const void* context, const Description& what, const void* parent) {
  const uint64_t above = owner_of(parent) == owner_of(context) ? id_of(parent) : 0;
  if (!Record::records(what, above)) return nullptr;  // most, on a busy host: without a lock
  const auto record = id_of(context) == 0 ? record_of(context) : nullptr;
  if (record == nullptr) return nullptr;
  const uint64_t id = record->start(what, above, clock_());
  return id == 0 ? nullptr : pointer_of(id << kIdShift | owner_of(context));
}

void Recorder::stop(const void* handle) {
  if (const auto record = record_of(handle)) record->stop(id_of(handle), clock_());
}

void Recorder::wait(const void* handle, Wait wait, uint64_t bytes) {
  if (const auto record = record_of(handle)) record->wait(id_of(handle), wait, bytes, clock_());
}

std::vector<std::shared_ptr<const Record>> Recorder::records() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<const Record>> records;
  for (const auto& [number, record] : records_) records.push_back(record);
  return records;
}

Recorder& recorder() {
  static Recorder* const instance = new Recorder(monotonic_ns);
  return *instance;
}

}  // namespace pacecar::profiler
