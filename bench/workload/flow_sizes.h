// A distribution of flow sizes: points of its cumulative distribution function, with linear
// interpolation between them, from one byte on. Immutable.
#pragma once

#include <string_view>
#include <vector>

#include "transport/base/result.h"
#include "transport/base/units.h"

namespace pacecar {

class FlowSizes {
 public:
  // "WebSearch" or "FB_Hadoop" (as in "HPCC: High Precision Congestion Control", SIGCOMM 2019,
  // section 5.1), or a text with lines `bytes percent`, both ascending, the last with 100 percent.
  // Errors: kInvalidArgument, naming the line.
  static Result<FlowSizes> make(std::string_view name_or_text);

  double mean() const;
  // The quantile: a share of `fraction` of all flows is smaller. 0 <= `fraction` < 1; at least 1 B.
  Bytes at(double fraction) const;

 private:
  struct Point {
    double bytes;
    double fraction;
  };
  std::vector<Point> points_;
};

}  // namespace pacecar
