#include "bench/top/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "bench/cli/console.h"

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

constexpr size_t kMaxNotes = 4;
constexpr size_t kMaxNics = 12;  // on a screen; logs have all

// The first row has the titles.
void add_table(std::vector<Line>& lines, const std::vector<Cells>& rows) {
  const size_t header = lines.size();
  for (std::string& text : cli::aligned(rows)) {
    const Style style = text.starts_with('!') ? Style::kTrouble : Style::kPlain;
    lines.push_back({std::move(text), lines.size() == header ? Style::kHeader : style});
  }
}

std::string title(const Rows& rows, const View& view, const Status& status) {
  std::string text = fmt::format(
      "pacecar top  {}  {} host{}, {} processes, {} NICs, {} flows  sorted by {}{}  every {:g} s",
      status.time, status.hosts, status.hosts == 1 ? "" : "s", rows.processes, rows.nics.size(),
      rows.flows.size(), kSortColumns[view.sort], view.reversed ? " (reversed)" : "",
      status.interval_s);
  if (view.paused) text += "  PAUSED";
  if (view.typing || !view.filter.empty()) text += "  filter: " + view.filter;
  return view.typing ? text + "_" : text;
}

void add_nics(std::vector<Line>& lines, const std::vector<Cells>& nics, size_t most) {
  std::vector<Cells> cells = {kNicTitles};
  for (const Cells& row : nics | std::views::take(most)) cells.push_back(row);
  add_table(lines, cells);
  if (most < nics.size()) lines.push_back({fmt::format("  and {} more NICs", nics.size() - most)});
}

}  // namespace

void press(View& view, int key) {
  if (view.typing) return type(view, key);
  switch (key) {
    case 'q': view.ends = true; break;
    case ' ':
    case 'p': view.paused = !view.paused; break;
    case 's': view.sort = (view.sort + 1) % kSortColumns.size(); break;
    case 'S': view.sort = (view.sort + kSortColumns.size() - 1) % kSortColumns.size(); break;
    case 'r': view.reversed = !view.reversed; break;
    case '/':
      view.typing = true;
      view.filter.clear();
      break;
    case kKeyEscape: view.filter.clear(); break;
    case 'h':
    case '?': view.help = !view.help; break;
    case kKeyUp: view.first -= std::min<size_t>(view.first, 1); break;
    case kKeyDown: ++view.first; break;
    case kKeyPageUp: view.first -= std::min(view.first, kPage); break;
    case kKeyPageDown: view.first += kPage; break;
    default: break;
  }
}

std::vector<Line> page_of(Rows rows, View& view, const Status& status, size_t height) {
  filter_rows(rows, view.filter);
  sort_flows(rows.flows, view.sort, view.reversed);
  std::vector<Line> lines = {{title(rows, view, status), Style::kTitle}};
  if (view.help) lines.push_back({kKeysHelp});
  std::vector<std::string> notes = rows.silent;
  notes.insert(notes.end(), status.notes.begin(), status.notes.end());
  for (size_t i = 0; i < notes.size() && (height == 0 || i < kMaxNotes); ++i) {
    lines.push_back({"! " + notes[i], Style::kTrouble});
  }
  if (view.first >= rows.flows.size()) view.first = rows.flows.empty() ? 0 : rows.flows.size() - 1;
  if (!rows.flows.empty()) lines.push_back({rows.flows[view.first].why});
  lines.push_back({});
  add_nics(lines, rows.nics, height == 0 ? rows.nics.size() : kMaxNics);
  lines.push_back({});
  std::vector<Cells> cells = {kFlowTitles};
  for (size_t i = view.first; i < rows.flows.size(); ++i) {
    if (height != 0 && lines.size() + cells.size() >= height) break;
    cells.push_back(rows.flows[i].cells);
  }
  add_table(lines, cells);
  if (height != 0 && lines.size() > height) lines.resize(height);
  return lines;
}

}  // namespace pacecar::top
