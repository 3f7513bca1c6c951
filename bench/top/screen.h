// The terminal, by ncurses: shows lines and reads keys. One at a time in a process.
#pragma once

#include <memory>
#include <vector>

#include "bench/top/page.h"
#include "transport/base/result.h"

struct screen;  // of ncurses, whose header defines macros with common names

namespace pacecar::top {

class Screen {
 public:
  // Errors: kInvalidArgument (no terminal, or one that is not known).
  static Result<std::unique_ptr<Screen>> open(bool color);
  ~Screen();  // restores the terminal
  Screen(const Screen&) = delete;

  size_t height() const;
  void draw(const std::vector<Line>& lines);
  // The next key within `limit_ms`; negative: there was none, or a signal came.
  int key(int limit_ms);

 private:
  Screen(screen* terminal, bool color);

  screen* const terminal_;
  const bool color_;
};

}  // namespace pacecar::top
