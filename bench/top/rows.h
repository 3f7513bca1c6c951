// The NICs and flows that top shows, as numbers. Pure.
//
// Rates in bit/s, times in seconds, shares from 0 to 1; nullopt: not known, or there is one sample
// only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/doctor/documents.h"
#include "bench/doctor/job.h"

namespace pacecar::top {

struct NicRow {
  std::string process;
  std::string nic;
  std::string congestion_control;
  std::optional<double> sends_bps;
  std::optional<double> receives_bps;
  std::optional<double> of_line;     // what it sends, as a share of its line rate
  std::optional<double> sent_again;  // of the packets sent
  std::optional<double> marked;      // of the packets received
  std::optional<double> rtt_s;       // median of its flows
  double flows = 0;
  double stalled = 0;
};

struct FlowRow {
  bool trouble = false;  // the rule names a fault, not a normal limit
  size_t severity = 0;  // of a fault: 0 is the worst
  std::string limit;    // the doctor's rule that holds: what limits the flow
  std::string why;      // one sentence
  std::string process;
  std::string nic;
  std::string peer;
  bool sending = false;
  std::optional<double> goodput_bps;  // this and the next four: of sending flows
  std::optional<double> may_send_bps;
  std::optional<double> rtt_s;
  std::optional<double> sent_again;
  std::optional<double> queue_bytes;
  std::optional<double> still_s;  // requests wait for so long
};

struct Rows {
  std::vector<std::string> silent;  // processes that do not answer, with the reason
  std::vector<NicRow> nics;
  std::vector<FlowRow> flows;
  size_t processes = 0;
};

// Leaves out documents that cannot be read; the errors are added to `notes`.
Rows rows_of(const doctor::Evidence& evidence, std::vector<std::string>& notes);

// The columns by which flows can be sorted: the largest value first, unknown ones last; kLimit: the
// worst first; kProcess: by name.
enum class Column : uint8_t {
  kLimit,
  kGoodput,
  kMaySend,
  kRtt,
  kSentAgain,
  kQueue,
  kStill,
  kProcess,
};
constexpr size_t kColumns = 8;
std::string_view name_of(Column column);

void sort_flows(std::vector<FlowRow>& flows, Column column, bool reversed);
// Keeps the rows whose process, NIC, peer or limit contains the filter.
void filter_rows(Rows& rows, std::string_view filter);

}  // namespace pacecar::top
