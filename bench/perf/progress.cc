#include "bench/perf/progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

namespace pacecar::perf {
namespace {
constexpr int kBarWidth = 30;
constexpr Duration kInterval = Duration::from_ms(100);
}  // namespace

std::string progress_line(double done, std::string_view rate, Duration elapsed) {
  done = std::clamp(done, 0.0, 1.0);
  const auto filled = static_cast<size_t>(done * kBarWidth);
  std::string line = fmt::format("[{:#<{}}{:.<{}}] {:3.0f}%  {}", "", filled, "",
                                 kBarWidth - filled, done * 100, rate);
  if (done > 0) {
    line += fmt::format("  {:.0f} s left", elapsed.seconds() * (1 - done) / done);
  }
  return line;
}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\r\033[K", stderr);
}

void ProgressBar::draw(double done, std::string_view rate, Duration elapsed) {
  const std::string line = "\r\033[K" + progress_line(done, rate, elapsed);
  std::fwrite(line.data(), 1, line.size(), stderr);
  drawn_ = true;
  next_ = elapsed + kInterval;
}

}  // namespace pacecar::perf
