#include "bench/top/screen.h"

#include <curses.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "transport/base/printable.h"

namespace pacecar::top {
namespace {

// Blue and yellow: colours that all people tell apart, and only beside marks and bold type.
constexpr short kTitlePair = 1;
constexpr short kTroublePair = 2;

int attributes_of(Style style, bool color) {
  switch (style) {
    case Style::kTitle:
      return static_cast<int>(color ? A_BOLD | COLOR_PAIR(kTitlePair) : A_REVERSE);
    case Style::kHeader:
      return static_cast<int>(A_UNDERLINE);
    case Style::kTrouble:
      return static_cast<int>(color ? A_BOLD | COLOR_PAIR(kTroublePair) : A_BOLD);
    case Style::kPlain:
      break;
  }
  return static_cast<int>(A_NORMAL);
}

}  // namespace

struct Screen::Terminal {
  SCREEN* screen = nullptr;
  bool color = false;

  ~Terminal() {
    if (screen == nullptr) return;
    endwin();
    delscreen(screen);
  }
};

Result<std::unique_ptr<Screen>> Screen::open(bool color) {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) {
    return fail(ErrorCode::kInvalidArgument,
                "this is no terminal: use --once for a log, or --json for a program");
  }
  auto terminal = std::make_unique<Terminal>();
  terminal->screen = newterm(nullptr, stdout, stdin);
  if (terminal->screen == nullptr) {
    const char* const type = std::getenv("TERM");
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the terminal '{}' is not known: set TERM, such as xterm, or use "
                            "--once",
                            printable(type == nullptr ? "" : type)));
  }
  cbreak();
  noecho();
  keypad(stdscr, TRUE);
  curs_set(0);
  set_escdelay(25);
  terminal->color = color && has_colors() && start_color() == OK;
  if (terminal->color) {
    use_default_colors();
    init_pair(kTitlePair, COLOR_BLUE, -1);
    init_pair(kTroublePair, COLOR_YELLOW, -1);
  }
  return std::unique_ptr<Screen>(new Screen(std::move(terminal)));
}

Screen::Screen(std::unique_ptr<Terminal> terminal) : terminal_(std::move(terminal)) {}
Screen::~Screen() = default;

size_t Screen::height() const { return static_cast<size_t>(std::max(1, LINES)); }

void Screen::draw(const std::vector<Line>& lines) {
  erase();
  for (size_t i = 0; i < lines.size() && i < height(); ++i) {
    const int attributes = attributes_of(lines[i].style, terminal_->color);
    attron(attributes);
    mvaddnstr(static_cast<int>(i), 0, lines[i].text.c_str(), COLS);
    attroff(attributes);
  }
  refresh();
}

int Screen::key(int limit_ms) {
  timeout(limit_ms);
  switch (const int key = getch()) {
    case KEY_UP:
      return kKeyUp;
    case KEY_DOWN:
      return kKeyDown;
    case KEY_PPAGE:
      return kKeyPageUp;
    case KEY_NPAGE:
      return kKeyPageDown;
    case KEY_ENTER:
      return kKeyEnter;
    case KEY_BACKSPACE:
      return kKeyErase;
    case KEY_RESIZE:
      return 0;
    default:
      return key < 256 ? key : 0;
  }
}

}  // namespace pacecar::top
