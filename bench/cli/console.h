// Messages to the user and the progress bar, on stderr, so that stdout has results only. Thread
// rule: any thread; one line is one write.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "bench/cli/clock.h"
#include "transport/base/log.h"
#include "transport/base/units.h"

namespace pacecar::cli {

class Console {
 public:
  // `quiet`: warnings and errors only. `color`: --no-color was not given.
  Console(bool quiet, bool color);

  void note(std::string_view line) const;
  void warn(std::string_view line) const;
  void error(std::string_view line) const;

  bool quiet() const { return quiet_; }
  // Whether standard output may be coloured: it is a terminal, and NO_COLOR is not set.
  bool colors_output() const;
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

// The rows of a table as lines: the first `left` columns are aligned left, the others right. Pure.
std::vector<std::string> aligned(const std::vector<std::vector<std::string>>& rows,
                                 size_t left = SIZE_MAX);

// One line: a bar, the share done, the rate and the time left. `done` is in [0, 1]. Pure.
std::string progress_line(double done, std::string_view rate, Duration elapsed);

// The destructor wipes it.
class ProgressBar {
 public:
  explicit ProgressBar(bool enabled) : enabled_(enabled) {}
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();

  // It is time to draw again. Cheap.
  bool due(Duration elapsed) const { return enabled_ && elapsed >= next_; }
  void draw(double done, std::string_view rate, Duration elapsed);
  // Draws "2 of 5 runs" if it is time.
  void show(size_t done, size_t all, std::string_view what);

 private:
  bool enabled_;
  Instant begun_ = steady_now();
  bool drawn_ = false;
  Duration next_ = Duration::from_ms(200);  // a short test shows none
};

}  // namespace pacecar::cli
