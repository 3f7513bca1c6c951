#include "bench/top/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>

#include "bench/doctor/rules.h"

namespace pacecar::top {

const Cells kNicTitles = {" NIC", "PROCESS",    "CC",     "SENDS", "RECEIVES", "OF LINE",
                          "RTT",  "RETRANSMIT", "MARKED", "FLOWS", "STALLED"};
const Cells kFlowTitles = {" LIMIT", "PROCESS",    "",      "PEER",        "GOODPUT", "RATE",
                           "RTT",    "RETRANSMIT", "QUEUE", "NO PROGRESS", "NIC"};

namespace {

enum NicCell : size_t { kNicsName, kNicsProcess };
enum FlowCell : size_t { kLimit, kProcess, kDirection, kPeer, kFlowsNic = 10 };

constexpr double kBits = 8;
constexpr const char* kUnknown = "-";
using Value = std::optional<double>;  // nullopt: not known, or there is one sample only

std::string rate(Value bps) { return bps ? doctor::rate_text(*bps) : kUnknown; }

std::string percent(Value share) { return share ? fmt::format("{:.1f}%", 100 * *share) : kUnknown; }

std::string micros(Value seconds) {
  return seconds ? fmt::format("{:.0f} us", *seconds * 1e6) : kUnknown;
}

std::string bytes(Value value) {
  if (!value) return kUnknown;
  if (*value < 1e4) return fmt::format("{:.0f} B", *value);
  return *value < 1e7 ? fmt::format("{:.0f} KB", *value / 1e3)
                      : fmt::format("{:.0f} MB", *value / 1e6);
}

Value share(Value part, Value whole) {
  if (!part || !whole || *whole <= 0) return std::nullopt;
  return std::min(1.0, *part / *whole);
}

Value positive(double value) { return value > 0 ? Value(value) : std::nullopt; }

std::string mark(bool trouble, std::string_view text) {
  return fmt::format("{}{}", trouble ? '!' : ' ', text);
}

// A NIC in the sample before.
struct Earlier {
  metrics::NicFigures figures;
  double seconds = 0;  // since then
};

Cells nic_row(const doctor::Process& process, const doctor::Nic& nic, const Earlier* before) {
  using F = metrics::NicFigures;
  const F& now = nic.figures;
  const auto grown = [&](double F::*counter) -> Value {
    if (before == nullptr || now.*counter < before->figures.*counter) return std::nullopt;
    return now.*counter - before->figures.*counter;
  };
  const auto bps = [&](double F::*counter) -> Value {
    const Value more = grown(counter);
    return more ? Value(kBits * *more / before->seconds) : std::nullopt;
  };
  const double stalled = now.stalled_sending + now.stalled_receiving;
  return {mark(stalled > 0, nic.name),
          doctor::name_of(process),
          now.congestion_control,
          rate(bps(&F::bytes_sent)),
          rate(bps(&F::bytes_received)),
          percent(share(bps(&F::bytes_sent), nic.line_rate_bps)),
          micros(positive(now.rtt_median_seconds)),
          percent(share(grown(&F::packets_retransmitted), grown(&F::packets_sent))),
          percent(share(grown(&F::marked_packets), grown(&F::packets_received))),
          fmt::format("{:.0f}", now.flows_sending + now.flows_receiving),
          fmt::format("{:.0f}", stalled)};
}

FlowRow flow_row(const doctor::Path& path) {
  const doctor::Flow& flow = *path.flow;
  const doctor::Rule& rule = doctor::diagnose(path);
  const auto of_sending = [&](Value value) { return flow.sending ? value : std::nullopt; };
  const Value goodput_bps = of_sending(flow.goodput_bps);
  const Value rate_bps = of_sending(flow.rate_bps);
  const Value rtt_s = of_sending(positive(flow.rtt_s));
  const Value retransmitted = of_sending(
      share(static_cast<double>(flow.repeated_bytes), static_cast<double>(flow.tried_bytes)));
  const Value queue_bytes = of_sending(static_cast<double>(flow.backlog_bytes));
  const Value still_s = flow.requests > 0 ? Value(flow.still_s) : std::nullopt;
  const Cells cells = {mark(rule.trouble, rule.name),
                       doctor::name_of(*path.process),
                       flow.sending ? "to" : "from",
                       path.peer_name(),
                       rate(goodput_bps),
                       rate(rate_bps),
                       micros(rtt_s),
                       percent(retransmitted),
                       bytes(queue_bytes),
                       still_s ? fmt::format("{:.1f} s", *still_s) : kUnknown,
                       path.nic->name};
  const auto severity = rule.trouble ? &rule - doctor::rules().data() : doctor::rules().size();
  FlowRow row{.cells = cells,
              .why = fmt::format("  {} {} {}: {}", cells[kProcess], cells[kDirection], cells[kPeer],
                                 rule.why(path)),
              .order = {{{static_cast<double>(severity), -goodput_bps.value_or(-1)}}}};
  size_t column = 0;
  for (const Value value : {goodput_bps, rate_bps, rtt_s, retransmitted, queue_bytes, still_s}) {
    row.order[++column].first = -value.value_or(-1);
  }
  return row;
}

bool holds(const Cells& cells, std::initializer_list<size_t> which, std::string_view filter) {
  return std::ranges::any_of(which,
                             [&](size_t i) { return cells[i].find(filter) != cells[i].npos; });
}

}  // namespace

Rows rows_of(const doctor::Evidence& evidence, std::vector<std::string>& notes) {
  Rows rows;
  doctor::Job job;
  std::map<std::string, Earlier> earlier;  // by the NIC's identity
  for (const doctor::Samples& samples : evidence.seen) {
    auto now = doctor::read_samples(samples);
    if (!now) {
      notes.push_back(now.error().message);
      continue;
    }
    if (auto before = doctor::read_summary(samples.before)) {
      const double seconds = now->uptime_s - before->uptime_s;
      for (doctor::Nic& nic : before->nics) {
        if (seconds > 0) earlier[nic.identity] = {std::move(nic.figures), seconds};
      }
    }
    job.add(std::move(*now));
  }
  rows.processes = job.processes().size();
  for (const doctor::SilentProcess& process : evidence.silent) {
    rows.silent.push_back(fmt::format("{}: {}", doctor::name_of(process), process.reason));
  }
  for (const doctor::Process& process : job.processes()) {
    for (const doctor::Nic& nic : process.nics) {
      const auto before = earlier.find(nic.identity);
      rows.nics.push_back(
          nic_row(process, nic, before == earlier.end() ? nullptr : &before->second));
      for (const doctor::Flow& flow : nic.flows) {
        rows.flows.push_back(flow_row({&job, &process, &nic, &flow}));
      }
    }
  }
  return rows;
}

void sort_flows(std::vector<FlowRow>& flows, size_t column, bool reversed) {
  const auto first = [column](const FlowRow& a, const FlowRow& b) {
    const bool by_name = column == kSortColumns.size() - 1;
    return by_name ? a.cells[kProcess] < b.cells[kProcess] : a.order[column] < b.order[column];
  };
  std::ranges::stable_sort(flows, [&](const FlowRow& a, const FlowRow& b) {
    return reversed ? first(b, a) : first(a, b);
  });
}

void filter_rows(Rows& rows, std::string_view filter) {
  std::erase_if(rows.flows, [&](const FlowRow& row) {
    return !holds(row.cells, {kLimit, kProcess, kPeer, kFlowsNic}, filter);
  });
  std::erase_if(rows.nics, [&](const Cells& cells) {
    return !holds(cells, {kNicsName, kNicsProcess}, filter);
  });
}

}  // namespace pacecar::top
