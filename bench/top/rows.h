// The NICs and flows that top shows, as rows of text, and the order of flows. Pure.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/doctor/documents.h"

namespace pacecar::top {

// Lines of trouble begin with '!', the others with a blank.
using Cells = std::vector<std::string>;
extern const Cells kNicTitles;
extern const Cells kFlowTitles;

// The columns by which flows can be sorted: the largest value first, unknown ones last; limit: the
// worst first; process: by name.
inline constexpr std::array<std::string_view, 8> kSortColumns = {
    "limit", "goodput", "rate", "rtt", "retransmit", "queue", "no-progress", "process"};

struct FlowRow {
  Cells cells;
  std::string why;  // one line, of the doctor's rule that holds
  // The sort key of each of kSortColumns, except of the process; smaller keys come first.
  std::array<std::pair<double, double>, kSortColumns.size() - 1> order;
};

struct Rows {
  std::vector<std::string> silent;  // processes that do not answer, with the reason
  std::vector<Cells> nics;
  std::vector<FlowRow> flows;
  size_t processes = 0;
};

// Leaves out documents that cannot be read; the errors are added to `notes`.
Rows rows_of(const doctor::Evidence& evidence, std::vector<std::string>& notes);

// `column`: index of kSortColumns.
void sort_flows(std::vector<FlowRow>& flows, size_t column, bool reversed);
// Keeps the rows whose process, NIC, peer or limit contains the filter.
void filter_rows(Rows& rows, std::string_view filter);

}  // namespace pacecar::top
