#include "tests/plugin/ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace pacecar::test {
namespace {

constexpr size_t kSliceElements = 16'384;
constexpr size_t kSlicesInFlight = 4;

// Sends `out` while it receives as much into `in`, in slices.
void exchange(const Ring& ring, const Buffer& out_buffer, std::span<uint32_t> out,
              const Buffer& in_buffer, std::span<uint32_t> in) {
  const auto slice = [](std::span<uint32_t> part, size_t i) {
    const size_t begin = std::min(i * kSliceElements, part.size());
    return as_bytes(part.subspan(begin, std::min(kSliceElements, part.size() - begin)));
  };
  const size_t slices = (std::max(out.size(), in.size()) + kSliceElements - 1) / kSliceElements;
  std::vector<void*> sending;
  std::vector<void*> receiving;
  for (size_t i = 0; i < slices + kSlicesInFlight; ++i) {
    if (i < slices) {
      receiving.push_back(ring.host.receive(ring.receive, Part{slice(in, i), 0, in_buffer.memory()}));
      sending.push_back(ring.host.send(ring.send, Part{slice(out, i), 0, out_buffer.memory()}));
    }
    if (i < kSlicesInFlight) continue;
    const size_t oldest = i - kSlicesInFlight;
    if (oldest >= slices) continue;
    EXPECT_EQ(ring.host.finish(receiving[oldest]), static_cast<int>(slice(in, oldest).size()));
    ring.host.finish(sending[oldest]);
  }
}

}  // namespace

uint64_t ring_all_reduce(const Ring& ring, const Buffer& data, const Buffer& scratch) {
  const std::span<uint32_t> own = as_elements(data);
  const std::span<uint32_t> arrived = as_elements(scratch);
  const auto members = static_cast<size_t>(ring.members);
  const auto part = [&](std::span<uint32_t> all, int index) {
    const size_t p = static_cast<size_t>(index + 2 * ring.members) % members;
    const size_t begin = all.size() * p / members;
    return all.subspan(begin, all.size() * (p + 1) / members - begin);
  };
  uint64_t sent = 0;
  const auto step = [&](int out) {
    const std::span<uint32_t> in = part(arrived, out - 1);
    exchange(ring, data, part(own, out), scratch, in);
    sent += part(own, out).size_bytes();
    return in;
  };
  for (int i = 0; i < ring.members - 1; ++i) {  // reduce-scatter
    const std::span<uint32_t> in = step(ring.position - i);
    const std::span<uint32_t> sum = part(own, ring.position - i - 1);
    std::transform(sum.begin(), sum.end(), in.begin(), sum.begin(), std::plus<>());
  }
  for (int i = 0; i < ring.members - 1; ++i) {  // all-gather
    const std::span<uint32_t> in = step(ring.position - i + 1);
    std::copy(in.begin(), in.end(), part(own, ring.position - i).begin());
  }
  return sent;
}

}  // namespace pacecar::test
