#include "bench/metrics/exposition.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <vector>

namespace pacecar::metrics {
namespace {

std::string process_labels(const ProcessFigures& process) {
  std::string labels;
  add_label(labels, "program", process.program);
  if (process.rank) add_label(labels, "rank", std::to_string(*process.rank));
  if (!process.number.empty()) add_label(labels, "process", process.number);
  return labels;
}

// A NIC, and the labels of all its samples.
struct Row {
  const NicFigures* nic;
  std::string labels;
};

std::vector<Row> rows_of(std::span<const ProcessFigures> processes) {
  std::vector<Row> rows;
  for (const ProcessFigures& process : processes) {
    const std::string whose = process_labels(process);
    for (const NicFigures& nic : process.nics) {
      std::string labels = whose;
      add_label(labels, "nic", nic.nic);
      add_label(labels, "cc", nic.congestion_control);
      rows.push_back({&nic, std::move(labels)});
    }
  }
  return rows;
}

void add_series(Exposition& exposition, const Series& series, std::span<const Row> rows) {
  if (!series.name.empty()) {
    exposition.family(fmt::format("pacecar_{}", series.name), series.type, series.help);
  }
  for (const Row& row : rows) {
    const double value = row.nic->*series.value;
    if (series.type == Type::kKnown && value == 0) continue;
    const std::string_view comma = series.labels.empty() ? "" : ",";
    exposition.sample(fmt::format("{}{}{}", row.labels, comma, series.labels), value);
  }
}

void add_device_counters(Exposition& exposition, std::span<const Row> rows) {
  exposition.family("pacecar_device_events", Type::kCounter,
                    "The device's own counters, of all users of the port.");
  for (const Row& row : rows) {
    for (const auto& [name, value] : row.nic->device) {
      std::string labels = row.labels;
      add_label(labels, "counter", name);
      exposition.sample(labels, value);
    }
  }
}

}  // namespace

void Exposition::family(std::string_view name, Type type, std::string_view help) {
  const bool counter = type == Type::kCounter;
  name_ = fmt::format("{}{}", name, counter ? "_total" : "");
  fmt::format_to(std::back_inserter(text_), "# HELP {0} {1}\n# TYPE {0} {2}\n", name_, help,
                 counter ? "counter" : "gauge");
}

void Exposition::sample(std::string_view labels, double value) {
  if (!std::isfinite(value)) return;
  const auto out = std::back_inserter(text_);
  if (labels.empty()) {
    fmt::format_to(out, "{} {}\n", name_, value);
  } else {
    fmt::format_to(out, "{}{{{}}} {}\n", name_, labels, value);
  }
}

void add_label(std::string& labels, std::string_view name, std::string_view value) {
  if (!labels.empty()) labels += ',';
  labels += name;
  labels += "=\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') labels += '\\';
    labels += c;
  }
  labels += '"';
}

void add_processes(Exposition& exposition, std::span<const ProcessFigures> processes) {
  const std::vector<Row> rows = rows_of(processes);
  constexpr Series kLineRate{"",
                             "",
                             &NicFigures::line_rate,
                             Type::kKnown,
                             "line_rate_bytes_per_second",
                             "Rate of the NIC's link."};
  add_series(exposition, kLineRate, rows);
  for (const Series& series : kSeries) add_series(exposition, series, rows);
  add_device_counters(exposition, rows);
  exposition.family("pacecar_process_uptime_seconds", Type::kGauge,
                    "Since the process began to use Pacecar.");
  for (const ProcessFigures& process : processes) {
    exposition.sample(process_labels(process), process.uptime);
  }
}

}  // namespace pacecar::metrics
