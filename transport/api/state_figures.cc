// Computes the metrics of a NIC: its counters, and sums over its flows.
#include <algorithm>
#include <vector>

#include "transport/api/state_document.h"

namespace pacecar {
namespace {

using metrics::NicFigures;

constexpr double kBitsPerByte = 8;

double bytes_per_second(Rate rate) { return rate.real_bps() / kBitsPerByte; }

bool stalls(const FlowStatus& flow) { return flow.requests > 0 && flow.still >= kStallLimit; }

void add_counters(const Statistics& statistics, NicFigures& figures) {
  const auto count = [](uint64_t value) { return static_cast<double>(value); };
  figures.congestion_control = printable(statistics.congestion_control);
  figures.bytes_sent = count(statistics.bytes_sent);
  figures.bytes_received = count(statistics.bytes_received);
  figures.messages_sent = count(statistics.messages_sent);
  figures.messages_received = count(statistics.messages_received);
  figures.packets_sent = count(statistics.packets_sent);
  figures.packets_received = count(statistics.packets_received);
  figures.packets_retransmitted = count(statistics.packets_retransmitted);
  figures.timeouts = count(statistics.timeouts);
  figures.packets_refused = count(statistics.packets_refused);
  figures.duplicates = count(statistics.duplicates);
  figures.rejected = count(statistics.rejected);
  figures.marked_packets = count(statistics.marked_packets);
  figures.expected_senders = count(statistics.expected_senders);
  for (const DeviceCounter& counter : statistics.device_counters) {
    figures.device.emplace_back(printable(counter.name), count(counter.count));
  }
}

// By LimitedBy.
constexpr std::array kLimitedBy = {
    &NicFigures::limited_by_line,    &NicFigures::limited_by_grant,
    &NicFigures::limited_by_network, &NicFigures::limited_by_window,
    &NicFigures::limited_by_budget,  &NicFigures::limited_by_host,
    &NicFigures::limited_by_application};
static_assert(kLimitedBy.size() == kEveryLimit.size());

void add_sending(const FlowStatus& flow, NicFigures& figures) {
  figures.flows_sending += 1;
  figures.connections_sending += flow.connections;
  figures.requests_sending += flow.requests;
  figures.stalled_sending += stalls(flow) ? 1 : 0;
  figures.flows_of_small_packets += flow.path_mtu > 0 ? 1 : 0;
  figures.*kLimitedBy[static_cast<size_t>(flow.explanation.limited_by)] += 1;
  figures.rate_bytes_per_second += bytes_per_second(flow.explanation.rate);
  figures.granted_to_us_bytes_per_second += bytes_per_second(flow.explanation.grant);
  figures.backlog_bytes += static_cast<double>(flow.stats.backlog);
  figures.in_flight_bytes += static_cast<double>(flow.stats.in_flight);
  figures.unacknowledged_writes += flow.writes;
}

void add_receiving(const FlowStatus& flow, NicFigures& figures) {
  figures.flows_receiving += 1;
  figures.connections_receiving += flow.connections;
  figures.requests_receiving += flow.requests;
  figures.stalled_receiving += stalls(flow) ? 1 : 0;
  figures.granted_by_us_bytes_per_second += bytes_per_second(flow.explanation.grant);
}

void add_round_trips(std::vector<double> seconds, NicFigures& figures) {
  if (seconds.empty()) return;
  std::sort(seconds.begin(), seconds.end());
  figures.rtt_min_seconds = seconds.front();
  figures.rtt_median_seconds = seconds[seconds.size() / 2];
  figures.rtt_max_seconds = seconds.back();
}

}  // namespace

NicFigures figures_of(const NicState& nic) {
  NicFigures figures;
  figures.nic = printable(nic.info.name);
  figures.line_rate = bytes_per_second(nic.line_rate);
  figures.link_processes = static_cast<double>(nic.sharers.size());
  add_counters(nic.statistics, figures);
  std::vector<double> round_trips;
  for (const FlowStatus& flow : nic.flows) {
    flow.sending ? add_sending(flow, figures) : add_receiving(flow, figures);
    figures.flows_broken += flow.state == FlowState::kBroken ? 1 : 0;
    if (flow.requests > 0) {
      figures.longest_stall_seconds = std::max(figures.longest_stall_seconds, flow.still.seconds());
    }
    if (flow.sending && flow.rtt > Duration()) round_trips.push_back(flow.rtt.seconds());
  }
  add_round_trips(std::move(round_trips), figures);
  return figures;
}

}  // namespace pacecar
