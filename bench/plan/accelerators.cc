#include "bench/plan/accelerators.h"

#include <algorithm>

namespace pacecar::plan {

double compute_s(const Accelerator& accelerator, double flops, double bytes) {
  return std::max(flops / (accelerator.flops * accelerator.efficiency),
                  bytes / accelerator.memory_rate);
}

bool calibrate(Accelerator& accelerator, std::span<const Sample> samples) {
  double x = 0;
  double y = 0;
  double xx = 0;
  double xy = 0;
  for (const Sample& sample : samples) {
    x += sample.flops;
    y += sample.seconds;
    xx += sample.flops * sample.flops;
    xy += sample.flops * sample.seconds;
  }
  const auto n = static_cast<double>(samples.size());
  const double spread = n * xx - x * x;
  double slope = spread > 1e-9 * xx ? (n * xy - x * y) / spread : xy / xx;
  double overhead = (y - slope * x) / n;
  if (spread <= 1e-9 * xx || overhead < 0) {
    slope = xy / xx;
    overhead = 0;
  }
  const double efficiency = 1 / (slope * accelerator.flops);
  if (!(slope > 0) || efficiency > 1) return false;
  accelerator.efficiency = efficiency;
  accelerator.overhead_s = overhead;
  return true;
}

}  // namespace pacecar::plan
