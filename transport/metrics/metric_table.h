// The only definition of all metrics of NICs. This table writes and reads the state document's
// `statistics`, and Prometheus' families are made from it. A new metric is a member of NicFigures
// and a line of the table. Times are in seconds, rates in bytes per second, as Prometheus requires.
// Thread rule: any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pacecar::metrics {

// The counters and measurements of a NIC. Doubles, as all values of Prometheus: exact up to 2^53.
struct NicFigures {
  std::string nic;
  std::string congestion_control;
  double line_rate = 0;
  // Since the NIC was opened:
  double bytes_sent = 0;
  double bytes_received = 0;
  double messages_sent = 0;
  double messages_received = 0;
  double packets_sent = 0;
  double packets_received = 0;
  double packets_retransmitted = 0;
  double timeouts = 0;
  double duplicates = 0;
  double rejected = 0;
  double marked_packets = 0;
  // At present, of all flows:
  double flows_sending = 0;
  double flows_receiving = 0;
  double flows_broken = 0;
  double connections_sending = 0;
  double connections_receiving = 0;
  double requests_sending = 0;
  double requests_receiving = 0;
  double stalled_sending = 0;
  double stalled_receiving = 0;
  double longest_stall = 0;
  double limited_by_line = 0;
  double limited_by_grant = 0;
  double limited_by_network = 0;
  double limited_by_budget = 0;
  double limited_by_host = 0;
  double limited_by_application = 0;
  double rate = 0;
  double granted_to_us = 0;
  double granted_by_us = 0;
  double backlog = 0;
  double in_flight = 0;
  double unacknowledged_writes = 0;
  double rtt_min = 0;
  double rtt_median = 0;
  double rtt_max = 0;
  double expected_senders = 0;
  double link_processes = 0;
  std::vector<std::pair<std::string, double>> device;  // the device's own counters, by name
};

struct ProcessFigures {
  std::string program;
  std::optional<uint64_t> rank;
  // Distinguishes processes of a host with the same program and rank; empty: there is only one.
  std::string number;
  double uptime = 0;
  std::vector<NicFigures> nics;
};

enum class Type : uint8_t { kCounter, kGauge };

// One value of a family.
struct Series {
  std::string_view key;     // in `statistics`; empty: it is elsewhere in the document
  std::string_view labels;  // distinguish it in the family; as Prometheus writes them
  double NicFigures::*value = nullptr;
};

constexpr size_t kMaxSeries = 6;

struct Family {
  std::string_view name;  // after "pacecar_", without "_total"
  Type type = Type::kGauge;
  std::string_view unit;  // the end of its name, or empty
  std::string_view help;
  std::array<Series, kMaxSeries> series;  // those that are not used have no value
  bool only_known = false;                // 0 means unknown, and is left out
};

std::span<const Family> families();

// Calls visit(series) for each series of each family.
void for_each_series(auto visit) {
  for (const Family& family : families()) {
    for (const Series& series : family.series) {
      if (series.value != nullptr) visit(series);
    }
  }
}

}  // namespace pacecar::metrics
