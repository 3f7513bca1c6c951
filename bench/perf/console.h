// Messages to the user, on stderr, so that stdout has results only. Thread rule: any thread; one
// line is one write.
#pragma once

#include <string_view>

#include "transport/base/log.h"

namespace pacecar::perf {

// Whether output to this file descriptor may be coloured: it is a terminal, and NO_COLOR is not
// set.
bool may_color(bool wanted, int fd);

class Console {
 public:
  // `quiet`: warnings and errors only. `color`: --no-color was not given.
  Console(bool quiet, bool color);

  void note(std::string_view line) const;
  void warn(std::string_view line) const;
  void error(std::string_view line) const;

  bool quiet() const { return quiet_; }
  // Stderr is a terminal, so that a progress bar may be drawn.
  bool interactive() const { return interactive_; }

  // Passes the library's warnings and errors on; the sink must not outlive the console.
  LogSink log_sink() const;

 private:
  void print(std::string_view color, std::string_view label, std::string_view line) const;

  bool quiet_;
  bool interactive_;
  bool color_;
};

}  // namespace pacecar::perf
