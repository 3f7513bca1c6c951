// What it costs to find the registration that memory lies in, among many: acquire and release, with
// a device that does nothing.
#include <benchmark/benchmark.h>

#include "gdr/registration_cache.h"

namespace pacecar {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kFirst = 1 << 30;
constexpr uint32_t kRights = 3;

class NoDevice : public Registrar {
 public:
  Result<uint32_t> add(const AddressRange& /*range*/, uint32_t /*rights*/) override {
    return ++key_;
  }
  void remove(uint32_t /*key*/) override {}

 private:
  uint32_t key_ = 0;
};

// Ranges of two pages, each of which overlaps the next.
void cached(benchmark::State& state) {
  const auto count = static_cast<uint64_t>(state.range(0));
  NoDevice device;
  RegistrationCache cache(device, count + 1);
  for (uint64_t i = 0; i < count; ++i) {
    benchmark::DoNotOptimize(cache.acquire(kFirst + i * kPage, 2 * kPage, kRights));
  }
  uint64_t next = 0;
  for (auto _ : state) {
    const auto lease = cache.acquire(kFirst + next * kPage, 2 * kPage, kRights);
    cache.release(*lease);
    next = (next + 7919) % count;
  }
}
BENCHMARK(cached)->Arg(1)->Arg(64)->Arg(4096);

// The same, but the range is not there yet.
void registered_anew(benchmark::State& state) {
  const auto count = static_cast<uint64_t>(state.range(0));
  NoDevice device;
  RegistrationCache cache(device, count + 1);
  for (uint64_t i = 0; i < count; ++i) {
    benchmark::DoNotOptimize(cache.acquire(kFirst + 4 * i * kPage, 2 * kPage, kRights));
  }
  uint64_t next = 0;
  for (auto _ : state) {
    const auto lease = cache.acquire(kFirst + (4 * next + 2) * kPage, kPage, kRights);
    cache.release(*lease);
    next = (next + 7919) % count;
  }
}
BENCHMARK(registered_anew)->Arg(1)->Arg(64)->Arg(4096);

}  // namespace
}  // namespace pacecar
