// Rows as lines of text, for the screen and for logs. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/top/rows.h"

namespace pacecar::top {

// Keys other than printable characters.
enum Key : int {
  kKeyEnter = '\n',
  kKeyEscape = 27,
  kKeyErase = 127,
  kKeyUp = 1000,
  kKeyDown,
  kKeyPageUp,
  kKeyPageDown,
};

// The user's choices.
struct View {
  size_t sort = 0;  // index of kSortColumns
  bool reversed = false;
  std::string filter;
  bool typing = false;  // the filter
  bool paused = false;
  bool help = false;
  size_t first = 0;  // the flow on top, after sorting
  bool ends = false;
};

constexpr const char* kKeysHelp =
    "q quit  space pause  s/S sort by the next/previous column  r reverse  / filter  "
    "esc no filter  arrows, PgUp, PgDn scroll";

// Changes the choices as this key asks for.
void press(View& view, int key);

// No style is the only sign: lines of trouble begin with '!', and the sorted column is named.
enum class Style : uint8_t { kPlain, kTitle, kHeader, kTrouble };

struct Line {
  std::string text;
  Style style = Style::kPlain;
};

struct Status {
  std::string time;  // "23:04:05"
  size_t hosts = 1;
  double interval_s = 2;
  std::vector<std::string> notes;  // about hosts and processes that could not be read
};

// Filtered, sorted and scrolled as the view says. `height`: the most lines; 0: no limit.
std::vector<Line> page_of(Rows rows, View& view, const Status& status, size_t height);

}  // namespace pacecar::top
