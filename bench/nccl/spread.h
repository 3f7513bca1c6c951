// Median, least and most of several rounds' results. Plugins are compared by ratios within a round,
// and their order changes from round to round, so that other load affects all of them equally.
#pragma once

#include <algorithm>
#include <vector>

namespace pacecar::nccl {

struct Spread {
  double median = 0;
  double least = 0;
  double most = 0;
};

// At least one sample.
inline Spread spread_of(std::vector<double> samples) {
  std::ranges::sort(samples);
  const size_t middle = samples.size() / 2;
  const double below = samples[samples.size() % 2 == 0 ? middle - 1 : middle];
  return {(below + samples[middle]) / 2, samples.front(), samples.back()};
}

}  // namespace pacecar::nccl
