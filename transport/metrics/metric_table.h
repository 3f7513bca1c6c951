// The only definition of all metrics of NICs. This table writes and reads the state document's
// `statistics`, and Prometheus' families are made from it. A new metric is a member of NicFigures
// and a line here. Thread rule: any.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "transport/metrics/figures.h"

namespace pacecar::metrics {

enum class Type : uint8_t { kCounter, kGauge };

// One value of a family.
struct Series {
  std::string_view key;     // in `statistics`; empty: it is elsewhere in the document
  std::string_view labels;  // distinguish it in the family; as Prometheus writes them
  double NicFigures::*value = nullptr;
};

constexpr size_t kMaxSeries = 6;

struct Family {
  std::string_view name;  // after "pacecar_", without "_total"
  Type type = Type::kGauge;
  std::string_view unit;  // the end of its name, or empty
  std::string_view help;
  std::array<Series, kMaxSeries> series;  // those that are not used have no value
  bool only_known = false;                // 0 means unknown, and is left out
};

std::span<const Family> families();

// Calls visit(series) for each series of each family.
void for_each_series(auto visit) {
  for (const Family& family : families()) {
    for (const Series& series : family.series) {
      if (series.value != nullptr) visit(series);
    }
  }
}

}  // namespace pacecar::metrics
