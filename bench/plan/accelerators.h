// A kind of accelerator, and how long it takes for so many operations: a roofline. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace pacecar::plan {

struct Accelerator {
  std::string name;
  uint32_t hosts = 1;
  uint32_t per_host = 8;
  double flops = 312e12;      // peak, per second, at the precision of training
  double efficiency = 0.5;    // of the peak: what matrices of a layer reach
  double overhead_s = 0;      // per layer and pass, beyond the roofline
  double memory = 80e9;       // bytes
  double memory_rate = 2e12;  // bytes per second

  uint32_t count() const { return hosts * per_host; }
};

// Seconds for operations that read and write so many bytes of memory.
double compute_s(const Accelerator& accelerator, double flops, double bytes);

// A measured pass through one layer.
struct Sample {
  double flops = 0;
  double seconds = 0;
};
// Sets efficiency and overhead so that samples are met best (least squares; with one sample, or
// where the overhead came out below 0, the overhead is 0). False, and nothing set, where samples
// say that more operations take less time, or that the peak is exceeded.
bool calibrate(Accelerator& accelerator, std::span<const Sample> samples);

}  // namespace pacecar::plan
