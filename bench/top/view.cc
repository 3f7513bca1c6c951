#include "bench/top/view.h"

#include <algorithm>

namespace pacecar::top {
namespace {

constexpr size_t kPage = 10;
constexpr size_t kMaxFilter = 64;

void type(View& view, int key) {
  if (key == kKeyEnter || key == '\r') {
    view.typing = false;
  } else if (key == kKeyEscape) {
    view.typing = false;
    view.filter.clear();
  } else if (key == kKeyErase || key == '\b') {
    if (!view.filter.empty()) view.filter.pop_back();
  } else if (key >= ' ' && key <= '~' && view.filter.size() < kMaxFilter) {
    view.filter += static_cast<char>(key);
  }
  view.first = 0;
}

Column next(Column column, size_t steps) {
  return static_cast<Column>((static_cast<size_t>(column) + steps) % kColumns);
}

}  // namespace

void press(View& view, int key) {
  if (view.typing) return type(view, key);
  switch (key) {
    case 'q':
      view.ends = true;
      break;
    case ' ':
    case 'p':
      view.paused = !view.paused;
      break;
    case 's':
      view.sort = next(view.sort, 1);
      break;
    case 'S':
      view.sort = next(view.sort, kColumns - 1);
      break;
    case 'r':
      view.reversed = !view.reversed;
      break;
    case '/':
      view.typing = true;
      view.filter.clear();
      break;
    case kKeyEscape:
      view.filter.clear();
      break;
    case 'h':
    case '?':
      view.help = !view.help;
      break;
    case kKeyUp:
      view.first -= std::min<size_t>(view.first, 1);
      break;
    case kKeyDown:
      ++view.first;
      break;
    case kKeyPageUp:
      view.first -= std::min(view.first, kPage);
      break;
    case kKeyPageDown:
      view.first += kPage;
      break;
    default:
      break;
  }
}

}  // namespace pacecar::top
