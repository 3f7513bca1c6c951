// The one definition of all metrics of NICs: the state document's `statistics` are written and read
// by this table, and Prometheus' families are made from it. A new metric is a member of NicFigures
// and a line here.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "transport/metrics/figures.h"

namespace pacecar::metrics {

enum class Type : uint8_t { kCounter, kGauge };

// The names of one family that have the same labels.
struct Series {
  std::string_view key;     // in `statistics`; empty: the document has it elsewhere
  std::string_view labels;  // that distinguish it in the family, as Prometheus writes them
  double NicFigures::* value = nullptr;
};

constexpr size_t kMaxSeries = 6;

struct Family {
  std::string_view name;  // after "pacecar_", without "_total"
  Type type = Type::kGauge;
  std::string_view unit;  // the end of its name, or empty
  std::string_view help;
  std::array<Series, kMaxSeries> series;  // the first ones; the rest have no value
  bool only_known = false;                // 0 means unknown, and is left out
};

std::span<const Family> families();

// `visit(series)` for all of all families.
void for_each_series(auto visit) {
  for (const Family& family : families()) {
    for (const Series& series : family.series) {
      if (series.value != nullptr) visit(series);
    }
  }
}

}  // namespace pacecar::metrics
