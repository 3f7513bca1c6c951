// A distribution of flow sizes, as points of its cumulative distribution function with straight
// lines between them; the first line begins at one byte. Immutable.
#pragma once

#include <string_view>
#include <vector>

#include "transport/base/result.h"
#include "transport/base/units.h"

namespace pacecar {

class FlowSizes {
 public:
  // "WebSearch" or "FB_Hadoop" (as in "HPCC: High Precision Congestion Control", SIGCOMM 2019,
  // section 5.1), or lines of one's own, `bytes percent`, both ascending, the last with 100
  // percent. Errors: kInvalidArgument, naming the line.
  static Result<FlowSizes> make(std::string_view name_or_text);

  double mean() const;
  // The size below which a share of 0 <= `fraction` < 1 of all flows is; at least 1.
  Bytes at(double fraction) const;

 private:
  struct Point {
    double bytes;
    double fraction;
  };
  std::vector<Point> points_;
};

}  // namespace pacecar
