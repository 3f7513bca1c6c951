// Metrics as text, in Prometheus' exposition format 0.0.4. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "transport/metrics/metric_table.h"

namespace pacecar::metrics {

inline constexpr const char* kExpositionType = "text/plain; version=0.0.4; charset=utf-8";

// Add a family, then its samples, then the next family; then take(). One thread at a time.
class Exposition {
 public:
  // `name` is the full name, without a counter's "_total".
  void family(std::string_view name, Type type, std::string_view help);
  // A sample of the last family. `labels`: as add_label() joins them.
  void sample(std::string_view labels, double value);
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
  std::string name_;  // of the samples
};

// Adds name="value" to `labels`, with quotes and backslashes escaped as Prometheus requires.
void add_label(std::string& labels, std::string_view name, std::string_view value);

// Adds all families of the processes' NICs.
void add_processes(Exposition& exposition, std::span<const ProcessFigures> processes);

}  // namespace pacecar::metrics
