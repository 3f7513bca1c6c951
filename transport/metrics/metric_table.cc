#include "transport/metrics/metric_table.h"

namespace pacecar::metrics {
namespace {

constexpr std::string_view kBytes = "bytes";
constexpr std::string_view kSeconds = "seconds";
constexpr std::string_view kRate = "bytes_per_second";
constexpr std::string_view kSending = "direction=\"send\"";
constexpr std::string_view kReceiving = "direction=\"receive\"";
using F = NicFigures;

constexpr Family counter(std::string_view name, std::string_view unit, std::string_view help,
                         std::string_view key, double F::*value) {
  return {name, Type::kCounter, unit, help, {Series{key, "", value}}};
}

constexpr Family gauge(std::string_view name, std::string_view unit, std::string_view help,
                       std::string_view key, double F::*value) {
  return {name, Type::kGauge, unit, help, {Series{key, "", value}}};
}

constexpr Family known(std::string_view name, std::string_view unit, std::string_view help,
                       std::string_view key, double F::*value) {
  return {name, Type::kGauge, unit, help, {Series{key, "", value}}, true};
}

constexpr Family both_ways(std::string_view name, std::string_view unit, std::string_view help,
                           Series sending, Series receiving) {
  sending.labels = kSending;
  receiving.labels = kReceiving;
  return {name, Type::kGauge, unit, help, {sending, receiving}};
}

constexpr std::array kFamilies = {
    counter("sent_bytes", kBytes, "Payload of the messages sent.", "bytes_sent", &F::bytes_sent),
    counter("received_bytes", kBytes, "Payload of the messages received.", "bytes_received",
            &F::bytes_received),
    counter("sent_messages", "", "Messages sent.", "messages_sent", &F::messages_sent),
    counter("received_messages", "", "Messages received.", "messages_received",
            &F::messages_received),
    counter("sent_packets", "", "Data packets sent.", "packets_sent", &F::packets_sent),
    counter("received_packets", "", "Data packets placed in memory.", "packets_received",
            &F::packets_received),
    counter("retransmitted_packets", "", "Data packets sent again.", "packets_retransmitted",
            &F::packets_retransmitted),
    counter("timeouts", "", "Timeouts: nothing was acknowledged until a timer expired.", "timeouts",
            &F::timeouts),
    counter("duplicate_packets", "", "Data packets received more than once; they are written once.",
            "duplicates", &F::duplicates),
    counter("rejected_packets", "", "Packets malformed, unknown, refused, forged or corrupt.",
            "rejected", &F::rejected),
    counter("marked_packets", "", "Data packets received with an ECN mark.", "marked_packets",
            &F::marked_packets),
    known("line_rate_bytes_per_second", kRate, "Rate of the NIC's link.", "", &F::line_rate),
    both_ways("flows", "", "Flows to and from the NICs of peers.",
              {"flows_sending", "", &F::flows_sending},
              {"flows_receiving", "", &F::flows_receiving}),
    gauge("broken_flows", "", "Flows whose peer is dead or has broken the protocol.",
          "flows_broken", &F::flows_broken),
    both_ways("connections", "", "Connections of all flows.",
              {"connections_sending", "", &F::connections_sending},
              {"connections_receiving", "", &F::connections_receiving}),
    both_ways("waiting_requests", "", "Pending requests.",
              {"requests_sending", "", &F::requests_sending},
              {"requests_receiving", "", &F::requests_receiving}),
    both_ways("stalled_flows", "",
              "Flows on whose requests nothing has moved for five seconds: sending, the peer posts "
              "no buffer or acknowledges nothing; receiving, it sends nothing.",
              {"stalled_sending", "", &F::stalled_sending},
              {"stalled_receiving", "", &F::stalled_receiving}),
    gauge("longest_stall_seconds", kSeconds,
          "For how long nothing has moved on the request that waits longest.",
          "longest_stall_seconds", &F::longest_stall),
    Family{"limited_flows",
           Type::kGauge,
           "",
           "Sending flows by what limits their rate.",
           {Series{"limited_by_line", "limit=\"line\"", &F::limited_by_line},
            Series{"limited_by_grant", "limit=\"grant\"", &F::limited_by_grant},
            Series{"limited_by_network", "limit=\"network\"", &F::limited_by_network},
            Series{"limited_by_budget", "limit=\"budget\"", &F::limited_by_budget},
            Series{"limited_by_host", "limit=\"host\"", &F::limited_by_host},
            Series{"limited_by_application", "limit=\"application\"", &F::limited_by_application}}},
    gauge("allowed_rate_bytes_per_second", kRate,
          "Sum of the rates that the sending flows may use.", "rate_bytes_per_second", &F::rate),
    both_ways("granted_rate_bytes_per_second", kRate,
              "Rates granted by peers (send) and to peers (receive), with congestion controls that "
              "grant.",
              {"granted_to_us_bytes_per_second", "", &F::granted_to_us},
              {"granted_by_us_bytes_per_second", "", &F::granted_by_us}),
    gauge("backlog_bytes", kBytes, "Bytes whose receive is posted and that are not acknowledged.",
          "backlog_bytes", &F::backlog),
    gauge("in_flight_bytes", kBytes, "Bytes in flight.", "in_flight_bytes", &F::in_flight),
    gauge("unacknowledged_writes", "", "Writes posted to the NIC and not acknowledged.",
          "unacknowledged_writes", &F::unacknowledged_writes),
    known("rtt_min_seconds", kSeconds, "Least smoothed round trip of the sending flows.",
          "rtt_min_seconds", &F::rtt_min),
    known("rtt_median_seconds", kSeconds, "Median of the sending flows' smoothed round trips.",
          "rtt_median_seconds", &F::rtt_median),
    known("rtt_max_seconds", kSeconds, "Largest smoothed round trip of the sending flows.",
          "rtt_max_seconds", &F::rtt_max),
    known("expected_senders", "", "Peers that may send at once, by the application's hint.",
          "expected_senders", &F::expected_senders),
    known("link_processes", "", "Processes of this host that divide the NIC's link.",
          "link_processes", &F::link_processes),
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

}  // namespace pacecar::metrics
