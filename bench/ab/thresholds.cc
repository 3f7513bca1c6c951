// The thresholds of a plan: what a metric of some cells must be, by itself or beside another arm.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/ab/plan_parts.h"
#include "bench/sim/metrics.h"
#include "bench/sim/spec_reader.h"
#include "transport/base/edit_distance.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"
#include "transport/base/to_number.h"

namespace pacecar::ab {
namespace {

constexpr double kLargest = 1e300;

// "5%" of `reference`, or a plain number.
double read_within(SpecReader& reader, double reference) {
  const SpecValue* value = reader.value("within");
  if (value == nullptr || value->string() == nullptr) {
    return reader.number("within", 0, 0, kLargest);
  }
  const std::string& text = *value->string();
  const auto percent = to_number<double>(std::string_view(text).substr(0, text.find('%')));
  if (text.find('%') + 1 != text.size() || !percent || !(*percent >= 0)) {
    reader.complain("within",
                    fmt::format("is \"{}\": it takes a share such as \"5%\", or a number", text));
  }
  return std::abs(reference) * percent.value_or(0) / 100;
}

// expect = 668, or expect = [3250, 4056] for anything between.
void read_expectation(SpecReader& reader, Threshold& threshold) {
  const SpecValue* expect = reader.value("expect");
  const SpecList one{*expect};
  const SpecList& ends =
      expect->list() != nullptr && expect->list()->size() == 2 ? *expect->list() : one;
  SpecTable range;
  range.set("low", ends.front());
  range.set("high", ends.back());
  SpecReader numbers(range, "expect", expect->place);
  const double low = numbers.number("low", 0, -kLargest, kLargest);
  const double high = numbers.number("high", 0, low, kLargest);
  reader.add_error(numbers.finish());
  const double below = read_within(reader, low);
  const double above = read_within(reader, high);
  threshold.low = low - below;
  threshold.high = high + above;
  threshold.reference = low + (high - low) / 2;
  threshold.expected = plain_text(*expect);
  if (reader.has("within")) {
    threshold.expected += " within " + plain_text(*reader.value("within"));
  }
}

// The keys of a bound that is not an expectation.
struct BoundKeys {
  std::string_view min;
  std::string_view max;
  Threshold::Of of;
};
constexpr BoundKeys kBounds[] = {{"min", "max", Threshold::Of::kValue},
                                 {"min_ratio", "max_ratio", Threshold::Of::kRatio},
                                 {"min_difference", "max_difference", Threshold::Of::kDifference}};

void read_bounds(SpecReader& reader, const BoundKeys& keys, Threshold& threshold) {
  std::vector<std::string> texts;
  if (reader.has(keys.min)) {
    threshold.low = threshold.reference = reader.number(keys.min, 0, -kLargest, kLargest);
    texts.push_back(fmt::format("at least {:g}", threshold.low));
  }
  if (reader.has(keys.max)) {
    threshold.high = threshold.reference = reader.number(keys.max, 0, -kLargest, kLargest);
    texts.push_back(fmt::format("at most {:g}", threshold.high));
  }
  threshold.of = keys.of;
  threshold.expected = fmt::format("{}", fmt::join(texts, ", "));
}

// Reads all keys of a bound, so that the reader knows them. The metrics of programs are not known
// before they run.
Threshold read_bound(SpecReader& reader, Experiment::Kind kind) {
  Threshold threshold;
  threshold.metric = reader.text("metric", "");
  const auto metric = find_metric(threshold.metric);
  if (!metric && kind == Experiment::Kind::kSimulation) {
    reader.complain("metric", "is wrong: " + metric.error().message);
  }
  int kinds = 0;
  if (reader.has("expect")) {
    read_expectation(reader, threshold);
    ++kinds;
  } else if (reader.has("within")) {
    reader.complain("within", "goes with expect");
  }
  for (const BoundKeys& keys : kBounds) {
    const bool min = reader.has(keys.min);
    const bool max = reader.has(keys.max);
    if (!min && !max) continue;
    read_bounds(reader, keys, threshold);
    ++kinds;
  }
  if (kinds != 1) {
    reader.complain("metric",
                    "needs one kind of bound: expect (with within), or min and max, or beside "
                    "versus = \"ARM\" min_ratio and max_ratio, or min_difference and "
                    "max_difference");
  }
  return threshold;
}

// The cell that `threshold` compares its own with.
Result<void> set_versus(const SpecValue& table, const std::string& arm,
                        const Experiment& experiment, Threshold& threshold) {
  const std::vector<std::string> names = names_of(experiment.arms);
  const auto found = std::find(names.begin(), names.end(), arm);
  const Cell& cell = experiment.cells[threshold.cell];
  const auto other = found == names.end()
                         ? std::nullopt
                         : partner(experiment, cell, static_cast<size_t>(found - names.begin()));
  if (!other) {
    return invalid(
        "{}: [[threshold]] versus is '{}'{}, an arm that the plan does not run beside '{}': it has "
        "{}",
        table.place.text(), arm, did_you_mean(arm, names), cell_text(experiment, cell),
        fmt::join(names, ", "));
  }
  threshold.versus = *other;
  threshold.expected += threshold.of == Threshold::Of::kRatio ? " x " + arm : " more than " + arm;
  return {};
}

}  // namespace

Result<void> read_threshold(const SpecValue& table, Experiment& experiment) {
  SpecReader reader(*table.table(), "[[threshold]]", table.place);
  Threshold bound = read_bound(reader, experiment.kind);
  constexpr std::string_view kStatistics[] = {"mean", "median"};
  bound.median = reader.choice("statistic", 0, kStatistics) == 1;
  if (bound.median) bound.expected = "median " + bound.expected;
  const std::string versus = reader.text("versus", "");
  if ((bound.of == Threshold::Of::kValue) != versus.empty()) {
    reader.complain("versus", "goes with a ratio or a difference, and these need it");
  }
  SpecValue select{SpecTable(), table.place};
  if (const SpecValue* where = reader.table("where")) select = *where;
  if (const SpecValue* arm = reader.value("arm")) select.table()->set("arm", *arm);
  RETURN_IF_ERROR(reader.finish());
  ASSIGN_OR_RETURN(const auto selected,
                   select_cells(select, "[[threshold]] where", experiment, experiment.cells));
  bool any = false;
  for (size_t cell = 0; cell < experiment.cells.size(); ++cell) {
    // Without an arm of its own, a comparison is about all arms but the one compared with.
    const bool itself = experiment.arms[experiment.cells[cell].arm].name == versus;
    if (!selected[cell] || itself) continue;
    Threshold threshold = bound;
    threshold.cell = cell;
    if (!versus.empty()) {
      RETURN_IF_ERROR(set_versus(table, versus, experiment, threshold));
    }
    experiment.thresholds.push_back(threshold);
    any = true;
  }
  if (any) return {};
  return invalid("{}: [[threshold]] is about no cell of the plan: see 'pacecar ab PLAN --list'",
                 table.place.text());
}

}  // namespace pacecar::ab
