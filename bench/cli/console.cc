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

Console::Console(bool quiet, bool color)
    : quiet_(quiet),
      interactive_(!quiet && isatty(STDERR_FILENO) == 1),
      color_(color && std::getenv("NO_COLOR") == nullptr) {}

bool Console::colors_output() const { return color_ && isatty(STDOUT_FILENO) == 1; }

void Console::note(std::string_view line) const {
  if (!quiet_) print("", "", line);
}

void Console::warn(std::string_view line) const { print(kYellow, "warning: ", line); }

void Console::error(std::string_view line) const { print(kRed, "error: ", line); }

LogSink Console::log_sink() const { return {log_line, const_cast<Console*>(this)}; }

void Console::print(std::string_view color, std::string_view label, std::string_view line) const {
  const bool colored = color_ && !label.empty() && isatty(STDERR_FILENO) == 1;
  const std::string text = fmt::format("{}{}{}{}{}\n", interactive_ ? kClearLine : "",
                                       colored ? color : "", label, colored ? kPlain : "", line);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

std::vector<std::string> aligned(const std::vector<std::vector<std::string>>& rows, size_t left) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::vector<std::string> lines;
  for (const auto& row : rows) {
    std::string& line = lines.emplace_back();
    for (size_t i = 0; i < row.size(); ++i) {
      line += i < left ? fmt::format("{:<{}}  ", row[i], widths[i])
                       : fmt::format("{:>{}}  ", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
  }
  return lines;
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

void ProgressBar::show(size_t done, size_t all, std::string_view what) {
  const Duration elapsed = steady_now() - begun_;
  if (!due(elapsed)) return;
  draw(static_cast<double>(done) / static_cast<double>(all),
       fmt::format("{} of {} {}", done, all, what), elapsed);
}

}  // namespace pacecar::cli
