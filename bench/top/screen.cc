#include "bench/top/screen.h"

#include <curses.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "transport/base/invalid.h"
#include "transport/base/printable.h"

namespace pacecar::top {
namespace {

// Blue and yellow: nearly everybody can tell them apart, and marks and bold type replace them.
constexpr short kTitlePair = 1;
constexpr short kTroublePair = 2;

constexpr std::array<std::pair<int, Key>, 6> kKeys = {{{KEY_UP, kKeyUp},
                                                       {KEY_DOWN, kKeyDown},
                                                       {KEY_PPAGE, kKeyPageUp},
                                                       {KEY_NPAGE, kKeyPageDown},
                                                       {KEY_ENTER, kKeyEnter},
                                                       {KEY_BACKSPACE, kKeyErase}}};

int attributes_of(Style style, bool color) {
  switch (style) {
    case Style::kTitle:
      return static_cast<int>(color ? A_BOLD | COLOR_PAIR(kTitlePair) : A_REVERSE);
    case Style::kHeader: return static_cast<int>(A_UNDERLINE);
    case Style::kTrouble:
      return static_cast<int>(color ? A_BOLD | COLOR_PAIR(kTroublePair) : A_BOLD);
    case Style::kPlain: break;
  }
  return static_cast<int>(A_NORMAL);
}

}  // namespace

Result<std::unique_ptr<Screen>> Screen::open(bool color) {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) {
    return invalid("this is no terminal: use --once for a log, or --json for a program");
  }
  SCREEN* const terminal = newterm(nullptr, stdout, stdin);
  if (terminal == nullptr) {
    const char* const type = std::getenv("TERM");
    return invalid("the terminal '{}' is not known: set TERM, such as xterm, or use --once",
                   printable(type == nullptr ? "" : type));
  }
  return std::unique_ptr<Screen>(
      new Screen(terminal, color && has_colors() && start_color() == OK));
}

Screen::Screen(SCREEN* terminal, bool color) : terminal_(terminal), color_(color) {
  cbreak();
  noecho();
  keypad(stdscr, TRUE);
  curs_set(0);
  set_escdelay(25);
  if (!color_) return;
  use_default_colors();
  init_pair(kTitlePair, COLOR_BLUE, -1);
  init_pair(kTroublePair, COLOR_YELLOW, -1);
}

Screen::~Screen() {
  endwin();
  delscreen(terminal_);
}

size_t Screen::height() const { return static_cast<size_t>(std::max(1, LINES)); }

void Screen::draw(const std::vector<Line>& lines) {
  erase();
  for (size_t i = 0; i < lines.size() && i < height(); ++i) {
    const int attributes = attributes_of(lines[i].style, color_);
    attron(attributes);
    mvaddnstr(static_cast<int>(i), 0, lines[i].text.c_str(), COLS);
    attroff(attributes);
  }
  refresh();
}

int Screen::key(int limit_ms) {
  timeout(limit_ms);
  const int key = getch();
  if (key < 256) return key;
  const auto known = std::ranges::find(kKeys, key, &std::pair<int, Key>::first);
  return known == kKeys.end() ? 0 : known->second;
}

}  // namespace pacecar::top
