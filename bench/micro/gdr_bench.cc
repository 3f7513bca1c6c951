// The cost of finding the registration of memory among many: acquire and release, with a device
// that does nothing.
#include <benchmark/benchmark.h>

#include <memory>

#include "gdr/registration_cache.h"

namespace pacecar {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kFirst = 1 << 30;
constexpr uint32_t kRights = 3;

class NoDevice {
 public:
  uint32_t acquire(RegistrationCache& cache, uint64_t begin, uint64_t length) {
    return cache
        .acquire({.range = {begin, begin + length}, .rights = kRights},
                 [this] {
                   return RegistrationCache::Registration{++key_, anything_};
                 })
        .value();
  }

 private:
  uint32_t key_ = 0;
  const std::shared_ptr<void> anything_ = std::make_shared<int>();
};

// Ranges of two pages, each of which overlaps the next.
void cached(benchmark::State& state) {
  const auto count = static_cast<uint64_t>(state.range(0));
  NoDevice device;
  RegistrationCache cache(count + 1);
  for (uint64_t i = 0; i < count; ++i) {
    benchmark::DoNotOptimize(device.acquire(cache, kFirst + i * kPage, 2 * kPage));
  }
  uint64_t next = 0;
  for (auto _ : state) {
    const uint32_t key = device.acquire(cache, kFirst + next * kPage, 2 * kPage);
    benchmark::DoNotOptimize(cache.release(key));
    next = (next + 7919) % count;
  }
}
BENCHMARK(cached)->Arg(1)->Arg(64)->Arg(4096);

// The same, but the range is not there yet.
void registered_anew(benchmark::State& state) {
  const auto count = static_cast<uint64_t>(state.range(0));
  NoDevice device;
  RegistrationCache cache(count + 1);
  for (uint64_t i = 0; i < count; ++i) {
    benchmark::DoNotOptimize(device.acquire(cache, kFirst + 4 * i * kPage, 2 * kPage));
  }
  uint64_t next = 0;
  for (auto _ : state) {
    const uint32_t key = device.acquire(cache, kFirst + (4 * next + 2) * kPage, kPage);
    benchmark::DoNotOptimize(cache.release(key));
    next = (next + 7919) % count;
  }
}
BENCHMARK(registered_anew)->Arg(1)->Arg(64)->Arg(4096);

}  // namespace
}  // namespace pacecar
