#include "bench/workload/flow_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "transport/base/invalid.h"
#include "transport/sim/text_file.h"

namespace pacecar {
namespace {

constexpr std::string_view kWebSearch = R"(
10000 15
20000 20
30000 30
50000 40
80000 53
200000 60
1000000 70
2000000 80
5000000 90
10000000 97
30000000 100
)";

constexpr std::string_view kFbHadoop = R"(
100 1
300 5
500 30
1000 60
2000 67
50000 82
120000 90
1000000 97.5
10000000 100
)";

constexpr double kMaxBytes = 1e12;

tl::unexpected<Error> bad_sizes(const std::string& reason) {
  return invalid("sizes of flows: {}", reason);
}

}  // namespace

Result<FlowSizes> FlowSizes::make(std::string_view name_or_text) {
  std::string_view text = name_or_text;
  if (text == "WebSearch") text = kWebSearch;
  if (text == "FB_Hadoop") text = kFbHadoop;

  FlowSizes sizes;
  sizes.points_.push_back({1, 0});
  for (const TextLine& line : text_lines(text)) {
    const auto bytes = parse_decimal(line.words[0], kMaxBytes);
    const auto percent =
        line.words.size() == 2 ? parse_decimal(line.words[1], 100) : std::optional<double>();
    if (!bytes || !percent) {
      return bad_sizes(
          fmt::format("line {} begins with '{}'; write 'bytes percent' in each line, "
                      "or one of the names WebSearch and FB_Hadoop",
                      line.number, shown(line.words[0])));
    }
    const Point& last = sizes.points_.back();
    if (*bytes < last.bytes || *percent / 100 < last.fraction) {
      return bad_sizes(
          fmt::format("line {} is below the line before it; let both columns ascend, "
                      "from 1 byte on",
                      line.number));
    }
    sizes.points_.push_back({*bytes, *percent / 100});
  }
  if (sizes.points_.back().fraction != 1) {
    return bad_sizes("the last line does not reach 100 percent; add one that does");
  }
  return sizes;
}

double FlowSizes::mean() const {
  double sum = 0;
  for (size_t i = 1; i < points_.size(); ++i) {
    const auto& [bytes, fraction] = points_[i];
    sum += (bytes + points_[i - 1].bytes) / 2 * (fraction - points_[i - 1].fraction);
  }
  return sum;
}

Bytes FlowSizes::at(double fraction) const {
  const auto right =
      std::upper_bound(points_.begin(), points_.end() - 1, fraction,
                       [](double value, const Point& point) { return value < point.fraction; });
  const auto left = right - 1;
  const double rise = right->fraction - left->fraction;
  const double part = rise > 0 ? (fraction - left->fraction) / rise : 1;
  return static_cast<Bytes>(std::lround(left->bytes + part * (right->bytes - left->bytes)));
}

}  // namespace pacecar
