// The histogram against the sorted values.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "transport/base/histogram.h"

namespace pacecar::histogram_property {
namespace {

// Values of every magnitude.
rc::Gen<std::vector<uint64_t>> values() {
  return rc::gen::container<std::vector<uint64_t>>(
      rc::gen::map(rc::gen::pair(rc::gen::inRange(0, 64), rc::gen::arbitrary<uint64_t>()),
                   [](const std::pair<int, uint64_t>& parts) {
                     return (parts.second * 0x9e3779b97f4a7c15) >> parts.first;
                   }));
}

Histogram histogram_of(const std::vector<uint64_t>& recorded) {
  Histogram histogram;
  for (const uint64_t value : recorded) histogram.record(value);
  return histogram;
}

void check_close(double actual, double expected, double scale) {
  RC_ASSERT(std::abs(actual - expected) <= 1e-6 * scale);
}

void check(const Histogram& histogram, std::vector<uint64_t> recorded) {
  RC_ASSERT(histogram.count() == recorded.size());
  if (recorded.empty()) return;
  std::sort(recorded.begin(), recorded.end());
  RC_ASSERT(histogram.min() == recorded.front());
  RC_ASSERT(histogram.max() == recorded.back());

  for (int tenths = 0; tenths <= 1000; tenths += 7) {
    const size_t rank = std::max<size_t>((recorded.size() * tenths + 999) / 1000, 1);
    const uint64_t exact = recorded[rank - 1];
    const uint64_t actual = histogram.value_at_percentile(tenths / 10.0);
    RC_ASSERT(actual >= exact);
    RC_ASSERT(actual - exact <= exact / 128);
  }

  const auto n = static_cast<long double>(recorded.size());
  long double sum = 0;
  for (const uint64_t value : recorded) sum += value;
  const long double mean = sum / n;
  long double squares = 0;
  for (const uint64_t value : recorded) squares += (value - mean) * (value - mean);
  const auto scale = static_cast<double>(recorded.back());
  check_close(histogram.mean(), static_cast<double>(mean), scale);
  check_close(histogram.stdev(), static_cast<double>(std::sqrt(squares / n)), scale);
}

RC_GTEST_PROP(Histogram, PercentilesMatchTheSortedValues, ()) {
  const auto recorded = *values();
  check(histogram_of(recorded), recorded);
}

RC_GTEST_PROP(Histogram, MergeEqualsRecordingBoth, ()) {
  auto recorded = *values();
  const auto more = *values();
  Histogram histogram = histogram_of(recorded);
  histogram.merge(histogram_of(more));
  recorded.insert(recorded.end(), more.begin(), more.end());
  check(histogram, recorded);
}

}  // namespace
}  // namespace pacecar::histogram_property
