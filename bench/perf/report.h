// Results as perftest's columns, and as JSON with perftest's keys and more. Pure. A result is a
// JSON object. The columns are printed from it, so that both agree, and so that a server prints
// what its client has measured.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/perf/interval_meter.h"
#include "bench/perf/options.h"
#include "bench/perf/phase.h"
#include "bench/perf/test_parameters.h"
#include "transport/base/histogram.h"

namespace pacecar::perf {

constexpr int kReportSchemaVersion = 1;

struct Column {
  std::string heading;
  std::string_view key;  // of the result
  int decimals;
};

std::vector<Column> columns_of(TestKind kind, const TestParameters& parameters);
std::string header_line(std::span<const Column> columns);
// Errors: kPeer when the result lacks a number.
Result<std::string> result_line(std::span<const Column> columns, const nlohmann::json& result);

// The bandwidth of `per_second` messages of `size` bytes in the report's unit.
double bandwidth(double per_second, uint64_t size, bool gigabits);
std::string_view bandwidth_unit(bool gigabits);

nlohmann::json bandwidth_result(uint64_t size, const TestOptions& options, const PhaseResult& phase,
                                const IntervalMeter& meter);
// `half_trips` in nanoseconds.
nlohmann::json latency_result(uint64_t size, const TestParameters& parameters,
                              const PhaseResult& phase, const IntervalMeter& meter,
                              const Histogram& half_trips);

// The threshold of the options that the result misses, or whose figure it lacks; empty: none.
std::string missed_threshold(const TestOptions& options, const nlohmann::json& result);
// Lines below the columns: the counters and the measurements that the options ask for.
std::vector<std::string> further_lines(const TestOptions& options, const nlohmann::json& result);

// The whole document. Its `results` is an object, or a list if there are several results.
nlohmann::json report_document(TestKind kind, const TestOptions& options, const NicInfo& nic,
                               const std::vector<nlohmann::json>& results);

}  // namespace pacecar::perf
