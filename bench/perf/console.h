// Messages to the user, on stderr, so that stdout has results only. Thread rule: any thread; one
// line is one write.
#pragma once

#include <string_view>

#include "transport/base/log.h"

namespace pacecar::perf {

class Console {
 public:
  // `quiet` leaves warnings and errors only. Colour needs a terminal, and neither --no-color nor
  // NO_COLOR.
  Console(bool quiet, bool color);

  void note(std::string_view line) const;
  void warn(std::string_view line) const;
  void error(std::string_view line) const;

  bool quiet() const { return quiet_; }
  // Stderr is a terminal and may be drawn on.
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
