// Rows as lines of text, for the screen and for logs. Pure.
#pragma once

#include <string>
#include <vector>

#include "bench/top/rows.h"
#include "bench/top/view.h"

namespace pacecar::top {

// A style never says anything alone: lines of trouble begin with '!', the sorted column is named.
enum class Style : uint8_t { kPlain, kTitle, kHeader, kTrouble };

struct Line {
  std::string text;
  Style style = Style::kPlain;
};

struct Status {
  std::string time;    // "23:04:05"
  size_t hosts = 1;
  double interval_s = 2;
  std::vector<std::string> notes;  // of hosts and processes of which nothing is known
};

// Filtered, sorted and scrolled as the view says. `height`: at most so many lines; 0: all.
std::vector<Line> page_of(Rows rows, View& view, const Status& status, size_t height);

}  // namespace pacecar::top
