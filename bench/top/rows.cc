#include "bench/top/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "bench/doctor/rules.h"

namespace pacecar::top {
namespace {

constexpr double kBits = 8;

struct Look {
  doctor::Process now;
  Result<doctor::Process> before;  // an error: this is the first look
};

// What a counter has grown by since `before`; nullopt if it has decreased.
std::optional<double> grown(const metrics::NicFigures* before, const metrics::NicFigures& now,
                            double metrics::NicFigures::*counter) {
  if (before == nullptr || now.*counter < before->*counter) return std::nullopt;
  return now.*counter - before->*counter;
}

std::optional<double> share(std::optional<double> part, std::optional<double> whole) {
  if (!part || !whole || *whole <= 0) return std::nullopt;
  return std::min(1.0, *part / *whole);
}

std::optional<double> positive(double value) {
  return value > 0 ? std::optional(value) : std::nullopt;
}

NicRow nic_row(const doctor::Process& process, const doctor::Nic& nic, const Look& look) {
  using F = metrics::NicFigures;
  const F* before = nullptr;
  const double seconds = look.before ? look.now.uptime_s - look.before->uptime_s : 0;
  if (seconds > 0) {
    for (const doctor::Nic& one : look.before->nics) {
      if (one.identity == nic.identity) before = &one.figures;
    }
  }
  const auto rate = [&](double F::*bytes) -> std::optional<double> {
    const auto more = grown(before, nic.figures, bytes);
    if (!more) return std::nullopt;
    return kBits * *more / seconds;
  };
  const auto sends_bps = rate(&F::bytes_sent);
  return {.process = doctor::name_of(process),
          .nic = nic.name,
          .congestion_control = nic.figures.congestion_control,
          .sends_bps = sends_bps,
          .receives_bps = rate(&F::bytes_received),
          .of_line = share(sends_bps, nic.line_rate_bps),
          .sent_again = share(grown(before, nic.figures, &F::packets_retransmitted),
                              grown(before, nic.figures, &F::packets_sent)),
          .marked = share(grown(before, nic.figures, &F::marked_packets),
                          grown(before, nic.figures, &F::packets_received)),
          .rtt_s = positive(nic.figures.rtt_median),
          .flows = nic.figures.flows_sending + nic.figures.flows_receiving,
          .stalled = nic.figures.stalled_sending + nic.figures.stalled_receiving};
}

FlowRow flow_row(const doctor::Path& path) {
  const doctor::Flow& flow = *path.flow;
  const doctor::Rule& rule = doctor::diagnose(path);
  FlowRow row{.trouble = rule.trouble,
              .severity = static_cast<size_t>(&rule - doctor::rules().data()),
              .limit = std::string(rule.name),
              .why = rule.why(path),
              .process = doctor::name_of(*path.process),
              .nic = path.nic->name,
              .peer = path.peer_name(),
              .sending = flow.sending};
  if (flow.requests > 0) row.still_s = flow.still_s;
  if (!flow.sending) return row;
  row.goodput_bps = flow.goodput_bps;
  row.may_send_bps = flow.rate_bps;
  row.queue_bytes = static_cast<double>(flow.backlog_bytes);
  row.sent_again =
      share(static_cast<double>(flow.repeated_bytes), static_cast<double>(flow.tried_bytes));
  row.rtt_s = positive(flow.rtt_s);
  return row;
}

std::vector<Look> looks_of(const doctor::Evidence& evidence, std::vector<std::string>& notes) {
  std::vector<Look> looks;
  for (const doctor::Sighting& sighting : evidence.seen) {
    auto now = doctor::read_sighting(sighting);
    if (!now) {
      notes.push_back(now.error().message);
      continue;
    }
    looks.push_back({std::move(*now), doctor::read_summary(sighting.before)});
  }
  return looks;
}

// In the order of Column. Null: goes_first() has the order.
struct SortColumn {
  std::string_view name;
  std::optional<double> FlowRow::*value = nullptr;
};
constexpr SortColumn kSortColumns[kColumns] = {{"limit"},
                                               {"goodput", &FlowRow::goodput_bps},
                                               {"may-send", &FlowRow::may_send_bps},
                                               {"rtt", &FlowRow::rtt_s},
                                               {"sent-again", &FlowRow::sent_again},
                                               {"queue", &FlowRow::queue_bytes},
                                               {"still", &FlowRow::still_s},
                                               {"process"}};

bool goes_first(const FlowRow& a, const FlowRow& b, Column column) {
  if (column == Column::kLimit) {
    const auto key = [](const FlowRow& row) {
      return std::tuple(row.trouble ? row.severity : doctor::rules().size(),
                        -row.goodput_bps.value_or(-1));
    };
    return key(a) < key(b);
  }
  if (column == Column::kProcess) return a.process < b.process;
  const auto value = kSortColumns[static_cast<size_t>(column)].value;
  return (a.*value).value_or(-1) > (b.*value).value_or(-1);  // unknown last
}

}  // namespace

Rows rows_of(const doctor::Evidence& evidence, std::vector<std::string>& notes) {
  Rows rows;
  const std::vector<Look> looks = looks_of(evidence, notes);
  doctor::Job job;
  for (const Look& look : looks) job.add(look.now);
  rows.processes = job.processes().size();
  for (const doctor::SilentProcess& process : evidence.silent) {
    rows.silent.push_back(fmt::format("{}: {}", doctor::name_of(process), process.reason));
  }
  for (const doctor::Process& process : job.processes()) {
    const Look& look = *std::ranges::find_if(looks, [&](const Look& one) {
      return one.now.pid == process.pid && one.now.host == process.host;
    });
    for (const doctor::Nic& nic : process.nics) {
      rows.nics.push_back(nic_row(process, nic, look));
      for (const doctor::Flow& flow : nic.flows) {
        rows.flows.push_back(flow_row({&job, &process, &nic, &flow}));
      }
    }
  }
  return rows;
}

std::string_view name_of(Column column) { return kSortColumns[static_cast<size_t>(column)].name; }

void sort_flows(std::vector<FlowRow>& flows, Column column, bool reversed) {
  std::stable_sort(flows.begin(), flows.end(), [&](const FlowRow& a, const FlowRow& b) {
    return reversed ? goes_first(b, a, column) : goes_first(a, b, column);
  });
}

void filter_rows(Rows& rows, std::string_view filter) {
  if (filter.empty()) return;
  const auto holds = [filter](std::string_view text) {
    return text.find(filter) != std::string_view::npos;
  };
  std::erase_if(rows.flows, [&](const FlowRow& row) {
    return !holds(row.process) && !holds(row.nic) && !holds(row.peer) && !holds(row.limit);
  });
  std::erase_if(rows.nics,
                [&](const NicRow& row) { return !holds(row.process) && !holds(row.nic); });
}

}  // namespace pacecar::top
