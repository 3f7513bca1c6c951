#include "net_plugin/tuner/tuners.h"

namespace pacecar::tuner {
namespace {

// A number: the generation above, the place counted from 1 below.
constexpr int kPlaceBits = 16;
constexpr uint64_t kPlaceMask = (uint64_t{1} << kPlaceBits) - 1;
static_assert(Tuners::kMost < kPlaceMask);

uint64_t number_of(const void* context) { return reinterpret_cast<uintptr_t>(context); }

}  // namespace

void* Tuners::open(std::unique_ptr<Tuning> tuning) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < kMost; ++i) {
    Place& place = places_[i];
    const uint32_t generation = place.generation.load(std::memory_order_relaxed) + 1;
    if (generation % 2 == 0) continue;
    place.tuning = std::move(tuning);
    place.generation.store(generation, std::memory_order_release);
    return reinterpret_cast<void*>(static_cast<uintptr_t>(generation) << kPlaceBits | (i + 1));
  }
  return nullptr;
}

void Tuners::close(void* context) {
  const std::lock_guard lock(mutex_);
  if (find(context) == nullptr) return;
  Place& place = places_[(number_of(context) & kPlaceMask) - 1];
  place.generation.fetch_add(1, std::memory_order_release);
  place.tuning.reset();
}

Tuning* Tuners::find(const void* context) const {
  const uint64_t place = number_of(context) & kPlaceMask;
  if (place == 0 || place > kMost) return nullptr;
  const Place& found = places_[place - 1];
  const uint64_t generation = found.generation.load(std::memory_order_acquire);
  const bool open = generation % 2 == 1 && generation == number_of(context) >> kPlaceBits;
  return open ? found.tuning.get() : nullptr;
}

Tuners& tuners() {
  static Tuners* const instance = new Tuners;
  return *instance;
}

}  // namespace pacecar::tuner
