// The user's choices, and the keys that change them. Pure.
#pragma once

#include <cstddef>
#include <string>

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

struct View {
  Column sort = Column::kLimit;
  bool reversed = false;
  std::string filter;
  bool typing = false;  // the filter
  bool paused = false;
  bool help = false;
  size_t first = 0;  // flow that is shown on top
  bool ends = false;
};

constexpr const char* kKeysHelp =
    "q quit  space pause  s/S sort by the next/previous column  r reverse  / filter  "
    "esc no filter  arrows, PgUp, PgDn scroll";

void press(View& view, int key);

}  // namespace pacecar::top
