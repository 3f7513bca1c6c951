// Metrics as text: Prometheus' exposition format 0.0.4, or OpenMetrics 1.0. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "transport/metrics/figures.h"
#include "transport/metrics/metric_table.h"

namespace pacecar::metrics {

enum class Format : uint8_t { kPrometheus, kOpenMetrics };

std::string_view content_type(Format format);

// One after another: a family, its samples, the next family; then take().
class Exposition {
 public:
  explicit Exposition(Format format) : format_(format) {}

  // `name` is whole but for a counter's "_total".
  void family(std::string_view name, Type type, std::string_view unit, std::string_view help);
  // Of the family begun last. `labels` as label() joins them.
  void sample(std::string_view labels, double value);
  std::string take();

 private:
  const Format format_;
  std::string text_;
  std::string name_;  // of the samples
};

// Adds name="value" to others, with quotes and backslashes escaped as Prometheus requires.
void add_label(std::string& labels, std::string_view name, std::string_view value);

// All families of the processes' NICs that have a value. A NIC has at most kMaxDeviceCounters of
// the device's own; others are left out.
void add_processes(Exposition& exposition, std::span<const ProcessFigures> processes);

constexpr size_t kMaxDeviceCounters = 64;

}  // namespace pacecar::metrics
