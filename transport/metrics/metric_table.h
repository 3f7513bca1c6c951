// The only definition of all metrics of NICs: the rows of metric_table.def. The state document's
// `statistics` and the families for Prometheus are made from these rows. Times are in seconds,
// rates in bytes per second, as Prometheus requires. Thread rule: any.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pacecar::metrics {

constexpr size_t kMaxDeviceCounters = 64;  // of a NIC, that are reported

// The counters and measurements of a NIC. Doubles, as all values of Prometheus: exact up to 2^53.
struct NicFigures {
  std::string nic;
  std::string congestion_control;
  double line_rate = 0;  // 0: unknown
#define PACECAR_METRIC(value, ...) double value = 0;
#define PACECAR_SERIES(value, labels) double value = 0;
#include "transport/metrics/metric_table.def"
#undef PACECAR_METRIC
#undef PACECAR_SERIES
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

enum class Type : uint8_t {
  kCounter,
  kGauge,
  kKnown,  // a gauge that is left out while it is 0: unknown
};

struct Series {
  std::string_view key;
  std::string_view labels;  // as Prometheus writes them
  double NicFigures::*value = nullptr;
  // Set in the first series of a family; empty in the others.
  Type type = Type::kGauge;
  std::string_view name = "";
  std::string_view help = "";
};

inline constexpr std::array kSeries = {
#define PACECAR_METRIC(value, labels, type, name, help) \
  Series{#value, labels, &NicFigures::value, Type::type, name, help},
#define PACECAR_SERIES(value, labels) Series{#value, labels, &NicFigures::value},
#include "transport/metrics/metric_table.def"
#undef PACECAR_METRIC
#undef PACECAR_SERIES
};

}  // namespace pacecar::metrics
