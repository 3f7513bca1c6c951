#include "bench/top/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "bench/doctor/report.h"
#include "bench/doctor/rules.h"

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

constexpr size_t kMaxNotes = 4;
constexpr size_t kMaxNics = 12;  // on a screen; logs have all
constexpr const char* kUnknown = "-";

using Cells = std::vector<std::string>;

std::string rate(std::optional<double> bps) { return bps ? doctor::rate_text(*bps) : kUnknown; }

std::string percent(std::optional<double> share) {
  return share ? fmt::format("{:.1f}%", 100 * *share) : kUnknown;
}

std::string micros(std::optional<double> seconds) {
  return seconds ? fmt::format("{:.0f} us", *seconds * 1e6) : kUnknown;
}

std::string bytes(std::optional<double> value) {
  if (!value) return kUnknown;
  if (*value < 1e4) return fmt::format("{:.0f} B", *value);
  return *value < 1e7 ? fmt::format("{:.0f} KB", *value / 1e3)
                      : fmt::format("{:.0f} MB", *value / 1e6);
}

Cells nic_cells(const NicRow& row) {
  return {(row.stalled > 0 ? "!" : " ") + row.nic,
          row.process,
          row.congestion_control,
          rate(row.sends_bps),
          rate(row.receives_bps),
          percent(row.of_line),
          micros(row.rtt_s),
          percent(row.sent_again),
          percent(row.marked),
          fmt::format("{:.0f}", row.flows),
          fmt::format("{:.0f}", row.stalled)};
}

const Cells kNicTitles = {" NIC", "PROCESS",    "CC",     "SENDS", "RECEIVES", "OF LINE",
                          "RTT",  "RETRANSMIT", "MARKED", "FLOWS", "STALLED"};

Cells flow_cells(const FlowRow& row) {
  return {(row.trouble ? "!" : " ") + row.limit,
          row.process,
          row.sending ? "to" : "from",
          row.peer,
          rate(row.goodput_bps),
          rate(row.may_send_bps),
          micros(row.rtt_s),
          percent(row.sent_again),
          bytes(row.queue_bytes),
          row.still_s ? fmt::format("{:.1f} s", *row.still_s) : kUnknown,
          row.nic};
}

const Cells kFlowTitles = {" LIMIT", "PROCESS",    "",      "PEER",        "GOODPUT", "RATE",
                           "RTT",    "RETRANSMIT", "QUEUE", "NO PROGRESS", "NIC"};

// The first row has the titles.
void add_table(std::vector<Line>& lines, const std::vector<Cells>& rows) {
  const size_t header = lines.size();
  for (std::string& text : doctor::aligned(rows)) {
    const Style style = text.starts_with('!') ? Style::kTrouble : Style::kPlain;
    lines.push_back({std::move(text), lines.size() == header ? Style::kHeader : style});
  }
}

std::string title(const Rows& rows, const View& view, const Status& status) {
  std::string text = fmt::format(
      "pacecar top  {}  {} host{}, {} processes, {} NICs, {} flows  sorted by {}{}  every {:g} s",
      status.time, status.hosts, status.hosts == 1 ? "" : "s", rows.processes, rows.nics.size(),
      rows.flows.size(), name_of(view.sort), view.reversed ? " (reversed)" : "", status.interval_s);
  if (view.paused) text += "  PAUSED";
  if (view.typing || !view.filter.empty()) text += "  filter: " + view.filter;
  return view.typing ? text + "_" : text;
}

void add_nics(std::vector<Line>& lines, const std::vector<NicRow>& nics, size_t most) {
  std::vector<Cells> cells = {kNicTitles};
  for (const NicRow& row : nics | std::views::take(most)) cells.push_back(nic_cells(row));
  add_table(lines, cells);
  if (most < nics.size()) lines.push_back({fmt::format("  and {} more NICs", nics.size() - most)});
}

std::string first_flow(const FlowRow& row) {
  return fmt::format("  {} {} {}: {}", row.process, row.sending ? "to" : "from", row.peer, row.why);
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
  if (!rows.flows.empty()) lines.push_back({first_flow(rows.flows[view.first])});
  lines.push_back({});
  add_nics(lines, rows.nics, height == 0 ? rows.nics.size() : kMaxNics);
  lines.push_back({});
  std::vector<Cells> cells = {kFlowTitles};
  for (size_t i = view.first; i < rows.flows.size(); ++i) {
    if (height != 0 && lines.size() + cells.size() >= height) break;
    cells.push_back(flow_cells(rows.flows[i]));
  }
  add_table(lines, cells);
  if (height != 0 && lines.size() > height) lines.resize(height);
  return lines;
}

}  // namespace pacecar::top
