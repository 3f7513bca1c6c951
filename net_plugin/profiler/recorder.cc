#include "net_plugin/profiler/recorder.h"

#include <chrono>

namespace pacecar::profiler {
namespace {

// A number has the place, counted from 1, the low bits of its generation, and the event's id.
constexpr int kGenerationShift = 8;
constexpr int kIdShift = 16;
constexpr uint64_t kByte = 0xff;

uint64_t number_of(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }
void* pointer_of(uint64_t number) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(number));
}
uint64_t id_of(const void* pointer) { return number_of(pointer) >> kIdShift; }
uint64_t owner_of(const void* pointer) { return number_of(pointer) & ((1U << kIdShift) - 1); }

}  // namespace

uint64_t monotonic_ns() {
  const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(now.count());
}

void* Recorder::open(const Identity& identity) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < places_.size(); ++i) {
    Place& place = places_[i];
    const uint32_t generation = place.generation.load(std::memory_order_relaxed);
    if (generation % 2 == 1) continue;
    if (place.record == nullptr) place.record = std::make_unique<Record>();
    place.record->reset(identity);
    place.generation.store(generation + 1, std::memory_order_release);
    return pointer_of((i + 1) | ((generation + 1) & kByte) << kGenerationShift);
  }
  return nullptr;
}

void Recorder::close(void* context) {
  if (record_of(context) == nullptr) return;
  const std::lock_guard lock(mutex_);
  places_[(number_of(context) & kByte) - 1].generation.fetch_add(1, std::memory_order_release);
}

Record* Recorder::record_of(const void* number) const {
  const uint64_t place = number_of(number) & kByte;
  if (place == 0 || place > kMaxCommunicators) return nullptr;
  const Place& found = places_[place - 1];
  const uint32_t generation = found.generation.load(std::memory_order_acquire);
  const bool same = (number_of(number) >> kGenerationShift & kByte) == (generation & kByte);
  return generation % 2 == 1 && same ? found.record.get() : nullptr;
}

void* Recorder::start(void* context, const Description& what, void* parent) {
  Record* const record = id_of(context) == 0 ? record_of(context) : nullptr;
  if (record == nullptr) return nullptr;
  const uint64_t above = owner_of(parent) == owner_of(context) ? id_of(parent) : 0;
  const uint64_t id = record->start(what, above, clock_());
  return id == 0 ? nullptr : pointer_of(id << kIdShift | owner_of(context));
}

void Recorder::stop(void* handle) {
  if (Record* const record = record_of(handle)) record->stop(id_of(handle), clock_());
}

void Recorder::wait(void* handle, Wait wait, uint64_t bytes) {
  if (Record* const record = record_of(handle)) record->wait(id_of(handle), wait, bytes, clock_());
}

void Recorder::add_bytes(void* handle, uint64_t bytes) {
  if (Record* const record = record_of(handle)) record->add_bytes(id_of(handle), bytes);
}

void Recorder::identify(void* context, uint64_t communicator, int32_t rank) {
  if (Record* const record = record_of(context)) record->identify(communicator, rank);
}

std::vector<const Record*> Recorder::records() const {
  const std::lock_guard lock(mutex_);
  std::vector<const Record*> records;
  for (const Place& place : places_) {
    if (place.generation.load(std::memory_order_acquire) % 2 == 1) {
      records.push_back(place.record.get());
    }
  }
  return records;
}

Recorder& recorder() {
  static Recorder* const instance = new Recorder(monotonic_ns);
  return *instance;
}

}  // namespace pacecar::profiler
