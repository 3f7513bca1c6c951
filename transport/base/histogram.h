// A log-linear histogram of uint64 values (latencies in ns, sizes in bytes): values below 256 are
// counted exactly, larger ones in 128 buckets per power of two, so that a value read back is at
// most 1/128 too large. Memory is fixed (58 KiB), allocated at construction. Thread rule: one
// owner; merge() joins the histograms of several.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace pacecar {

class Histogram {
 public:
  Histogram() : buckets_(kBuckets) {}

  void record(uint64_t value) {
    if (count_ == 0) pivot_ = value;
    ++count_;
    ++buckets_[bucket_of(value)];
    if (value < min_) min_ = value;
    if (value > max_) max_ = value;
    const double offset = static_cast<double>(value) - static_cast<double>(pivot_);
    offset_sum_ += offset;
    offset_square_sum_ += offset * offset;
  }

  uint64_t count() const { return count_; }
  // min and max are exact. All figures of an empty histogram are 0.
  uint64_t min() const { return count_ == 0 ? 0 : min_; }
  uint64_t max() const { return max_; }
  double mean() const;
  double stdev() const;  // population standard deviation

  // Nearest-rank percentile, at most 1/128 too large. Percentiles 0 and 100 are exact.
  uint64_t value_at_percentile(double percentile) const;

  void merge(const Histogram& other);

 private:
  static constexpr unsigned kBucketBits = 7;  // 2^7 buckets per power of two
  static constexpr size_t kBuckets = size_t{64 - kBucketBits + 1} << kBucketBits;

  static constexpr size_t bucket_of(uint64_t value) {
    const unsigned width = static_cast<unsigned>(std::bit_width(value | (1U << kBucketBits)));
    const unsigned shift = width - kBucketBits - 1;
    return (size_t{shift} << kBucketBits) + (value >> shift);
  }
  static constexpr uint64_t highest_of(size_t bucket) {
    if (bucket < (2U << kBucketBits)) return bucket;
    const size_t shift = (bucket >> kBucketBits) - 1;
    const uint64_t mantissa = bucket - (shift << kBucketBits);
    return (mantissa << shift) + ((uint64_t{1} << shift) - 1);
  }

  std::vector<uint64_t> buckets_;
  uint64_t count_ = 0;
  uint64_t min_ = std::numeric_limits<uint64_t>::max();
  uint64_t max_ = 0;
  // Sums are relative to the first value: squares of large ones would drown a small variance.
  uint64_t pivot_ = 0;
  double offset_sum_ = 0;
  double offset_square_sum_ = 0;
};

}  // namespace pacecar
