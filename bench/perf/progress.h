// The progress bar on stderr; the destructor wipes it.
#pragma once

#include <string>
#include <string_view>

#include "transport/base/units.h"

namespace pacecar::perf {

// One line: a bar, the share done, the rate and the time left. `done` is in [0, 1]. Pure.
std::string progress_line(double done, std::string_view rate, Duration elapsed);

class ProgressBar {
 public:
  explicit ProgressBar(bool enabled) : enabled_(enabled) {}
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();

  // It is time to draw again. Cheap.
  bool due(Duration elapsed) const { return enabled_ && elapsed >= next_; }
  void draw(double done, std::string_view rate, Duration elapsed);

 private:
  bool enabled_;
  bool drawn_ = false;
  Duration next_ = Duration::from_ms(200);  // a short test shows none
};

}  // namespace pacecar::perf
