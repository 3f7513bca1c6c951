#include "transport/base/histogram.h"

#include <algorithm>
#include <cmath>

namespace pacecar {

double Histogram::mean() const {
  if (count_ == 0) return 0;
  return static_cast<double>(pivot_) + offset_sum_ / static_cast<double>(count_);
}

double Histogram::stdev() const {
  if (count_ == 0) return 0;
  const auto n = static_cast<double>(count_);
  const double offset_mean = offset_sum_ / n;
  return std::sqrt(std::max(0.0, offset_square_sum_ / n - offset_mean * offset_mean));
}

uint64_t Histogram::value_at_percentile(double percentile) const {
  if (count_ == 0) return 0;
  if (!(percentile > 0)) return min_;
  if (percentile >= 100) return max_;
  // 99.9 is a little more than 99.9 in binary; the slack keeps it from the next rank.
  const double exact_rank = percentile * static_cast<double>(count_) / 100;
  const auto rank = static_cast<uint64_t>(std::ceil(exact_rank * (1 - 1e-14)));
  uint64_t seen = 0;
  for (size_t bucket = bucket_of(min_); bucket < bucket_of(max_); ++bucket) {
    seen += buckets_[bucket];
    if (seen >= rank) return highest_of(bucket);
  }
  return max_;
}

void Histogram::merge(const Histogram& other) {
  if (other.count_ == 0) return;
  if (count_ == 0) pivot_ = other.pivot_;
  for (size_t bucket = 0; bucket < kBuckets; ++bucket) buckets_[bucket] += other.buckets_[bucket];
  count_ += other.count_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  const double shift = static_cast<double>(other.pivot_) - static_cast<double>(pivot_);
  const double other_shift = shift * static_cast<double>(other.count_);
  offset_square_sum_ +=
      other.offset_square_sum_ + 2 * shift * other.offset_sum_ + shift * other_shift;
  offset_sum_ += other.offset_sum_ + other_shift;
}

}  // namespace pacecar
