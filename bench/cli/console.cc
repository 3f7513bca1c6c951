#include "bench/cli/console.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace pacecar::cli {
namespace {

constexpr std::string_view kRed = "\033[31m";
constexpr std::string_view kYellow = "\033[33m";
constexpr std::string_view kPlain = "\033[0m";
// Wipes the progress bar, which may be on the line.
constexpr std::string_view kClearLine = "\r\033[K";
constexpr int kBarWidth = 30;
constexpr Duration kBarInterval = Duration::from_ms(100);

void log_line(void* context, LogLevel level, std::string_view line) {
  const auto& console = *static_cast<const Console*>(context);
  if (level == LogLevel::kError) console.error(line);
  if (level == LogLevel::kWarn) console.warn(line);
}

}  // namespace

bool may_color(bool wanted, int fd) {
  return wanted && isatty(fd) == 1 && std::getenv("NO_COLOR") == nullptr;
}

Console::Console(bool quiet, bool color)
    : quiet_(quiet),
      interactive_(!quiet && isatty(STDERR_FILENO) == 1),
      color_(may_color(color, STDERR_FILENO)) {}

void Console::note(std::string_view line) const {
  if (!quiet_) print("", "", line);
}

void Console::warn(std::string_view line) const { print(kYellow, "warning: ", line); }

void Console::error(std::string_view line) const { print(kRed, "error: ", line); }

LogSink Console::log_sink() const { return {log_line, const_cast<Console*>(this)}; }

void Console::print(std::string_view color, std::string_view label, std::string_view line) const {
  const bool colored = color_ && !label.empty();
  const std::string text = fmt::format("{}{}{}{}{}\n", interactive_ ? kClearLine : "",
                                       colored ? color : "", label, colored ? kPlain : "", line);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

std::string progress_line(double done, std::string_view rate, Duration elapsed) {
  done = std::clamp(done, 0.0, 1.0);
  const auto filled = static_cast<size_t>(done * kBarWidth);
  std::string line = fmt::format("[{:#<{}}{:.<{}}] {:3.0f}%  {}", "", filled, "",
                                 kBarWidth - filled, done * 100, rate);
  if (done > 0) line += fmt::format("  {:.0f} s left", elapsed.seconds() * (1 - done) / done);
  return line;
}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fwrite(kClearLine.data(), 1, kClearLine.size(), stderr);
}

void ProgressBar::draw(double done, std::string_view rate, Duration elapsed) {
  const std::string line = fmt::format("{}{}", kClearLine, progress_line(done, rate, elapsed));
  std::fwrite(line.data(), 1, line.size(), stderr);
  drawn_ = true;
  next_ = elapsed + kBarInterval;
}

}  // namespace pacecar::cli
