// The terminal, by ncurses: lines with styles out, keys in. One at a time in a process.
#pragma once

#include <memory>
#include <vector>

#include "bench/top/page.h"
#include "transport/base/result.h"

namespace pacecar::top {

class Screen {
 public:
  // Errors: kInvalidArgument (no terminal, or one that is not known).
  static Result<std::unique_ptr<Screen>> open(bool color);
  ~Screen();  // the terminal is as it was
  Screen(const Screen&) = delete;

  size_t height() const;
  void draw(const std::vector<Line>& lines);
  // Waits for so long; negative: none came, or a signal did.
  int key(int limit_ms);

 private:
  struct Terminal;
  explicit Screen(std::unique_ptr<Terminal> terminal);
  std::unique_ptr<Terminal> terminal_;
};

}  // namespace pacecar::top
