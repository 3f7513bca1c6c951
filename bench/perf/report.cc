#include "bench/perf/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "bench/perf/json_fields.h"
#include "transport/base/return_if_error.h"

namespace pacecar::perf {
namespace {

using Json = nlohmann::json;

constexpr double kBytesPerGb = 1e9;
constexpr double kNsPerUs = 1e3;
constexpr int kMinColumnWidth = 10;

double rate_of(uint64_t messages, Duration span) {
  return span > Duration() ? static_cast<double>(messages) / span.seconds() : 0;
}

double us(double ns) { return ns / kNsPerUs; }

Json end_json(const EndReport& end, double bytes) {
  Json object = to_json(end);
  object["cpu_s_per_gb"] = bytes > 0 ? end.cpu_s / (bytes / kBytesPerGb) : 0;
  return object;
}

// Members common to both kinds of result.
Json common_result(uint64_t size, uint64_t iterations, const TestParameters& parameters,
                   const PhaseResult& phase, const IntervalMeter& meter) {
  const double bytes = static_cast<double>(phase.messages) * static_cast<double>(size);
  Json result = {{"MsgSize", size},
                 {"n_iterations", iterations},
                 {"seconds", phase.elapsed.seconds()},
                 {"bytes", phase.messages * size},
                 {"limited_by", meter.limits().shares()},
                 {"client", end_json(phase.client, bytes)},
                 {"server", end_json(phase.server, bytes)}};
  if (parameters.cpu_util) {
    const double seconds = phase.elapsed.seconds();
    result["CPU_Util"] = seconds > 0 ? 100 * phase.client.cpu_s / seconds : 0;
  }
  return result;
}

Json interval_json(const Interval& interval) {
  const LimitsSeen& limits = interval.limits;
  return {{"start_s", interval.start.seconds()},
          {"seconds", interval.length.seconds()},
          {"messages", interval.messages},
          {"limited_by", limits.shares()},
          {"congestion_control", limits.any() ? to_json(limits.last()) : Json()}};
}

int width_of(const Column& column) {
  return std::max(kMinColumnWidth, static_cast<int>(column.heading.size()));
}

}  // namespace

std::vector<Column> columns_of(TestKind kind, const TestParameters& parameters) {
  const bool gigabits = parameters.gigabits;
  const int decimals = gigabits ? 3 : 2;
  std::vector<Column> columns = {{"#bytes", "MsgSize", 0}, {"#iterations", "n_iterations", 0}};
  if (kind == TestKind::kLatency) {
    columns.insert(columns.end(), {{"t_min[usec]", "t_min", 2},
                                   {"t_max[usec]", "t_max", 2},
                                   {"t_typical[usec]", "t_typical", 2},
                                   {"t_avg[usec]", "t_avg", 2},
                                   {"t_stdev[usec]", "t_stdev", 2},
                                   {"99% percentile[usec]", "percentile_99", 2},
                                   {"99.9% percentile[usec]", "percentile_99.9", 2}});
  } else {
    columns.insert(
        columns.end(),
        {{gigabits ? "BW peak[Gb/sec]" : "BW peak[MiB/sec]", "BW_peak", decimals},
         {gigabits ? "BW average[Gb/sec]" : "BW average[MiB/sec]", "BW_average", decimals},
         {"MsgRate[Mpps]", "MsgRate", 6}});
  }
  if (parameters.report_both) {
    columns.push_back({gigabits ? "sent[Gb/sec]" : "sent[MiB/sec]", "BW_sent", 2});
    columns.push_back({gigabits ? "received[Gb/sec]" : "received[MiB/sec]", "BW_received", 2});
  }
  if (parameters.cpu_util) columns.push_back({"CPU_Util[%]", "CPU_Util", 2});
  return columns;
}

std::string header_line(std::span<const Column> columns) {
  std::string line;
  for (const Column& column : columns) {
    line += fmt::format(" {:<{}}", column.heading, width_of(column));
  }
  return line;
}

Result<std::string> result_line(std::span<const Column> columns, const Json& result) {
  std::string line;
  for (const Column& column : columns) {
    ASSIGN_OR_RETURN(const auto value,
                     number_field(result, column.key, 0, std::numeric_limits<double>::max()));
    line += fmt::format(" {:<{}.{}f}", value, width_of(column), column.decimals);
  }
  return line;
}

double bandwidth(double per_second, uint64_t size, bool gigabits) {
  const double bytes = per_second * static_cast<double>(size);
  return gigabits ? bytes * 8 / 1e9 : bytes / (1024 * 1024);
}

std::string_view bandwidth_unit(bool gigabits) { return gigabits ? "Gb/sec" : "MiB/sec"; }

Json bandwidth_result(uint64_t size, const TestOptions& options, const PhaseResult& phase,
                      const IntervalMeter& meter) {
  const TestParameters& parameters = options.parameters;
  const bool gigabits = parameters.gigabits;
  const double average = rate_of(phase.messages, phase.elapsed);
  Json result = common_result(size, phase.messages, parameters, phase, meter);
  // The peak of a run shorter than an interval is its average.
  const double peak = options.peak ? std::max(average, meter.peak()) : 0;
  result["BW_peak"] = bandwidth(peak, size, gigabits);
  result["BW_average"] = bandwidth(average, size, gigabits);
  result["BW_unit"] = bandwidth_unit(gigabits);
  result["MsgRate"] = average / 1e6;
  if (parameters.report_both) {
    const auto part = [&](uint64_t messages) {
      return bandwidth(rate_of(messages, phase.elapsed), size, gigabits);
    };
    result["BW_sent"] = part(phase.sent);
    result["BW_received"] = part(phase.messages - phase.sent);
  }
  Json intervals = Json::array();
  for (const Interval& interval : meter.intervals()) {
    Json entry = interval_json(interval);
    entry["BW"] = bandwidth(interval.per_second(), size, gigabits);
    intervals.push_back(std::move(entry));
  }
  result["intervals"] = std::move(intervals);
  return result;
}

Json latency_result(uint64_t size, const TestParameters& parameters, const PhaseResult& phase,
                    const IntervalMeter& meter, const Histogram& half_trips) {
  const auto percentile = [&half_trips](double p) {
    return us(static_cast<double>(half_trips.value_at_percentile(p)));
  };
  Json result = common_result(size, half_trips.count(), parameters, phase, meter);
  result["t_min"] = us(static_cast<double>(half_trips.min()));
  result["t_max"] = us(static_cast<double>(half_trips.max()));
  result["t_typical"] = percentile(50);
  result["t_avg"] = us(half_trips.mean());
  result["t_stdev"] = us(half_trips.stdev());
  result["percentile_99"] = percentile(99);
  result["percentile_99.9"] = percentile(99.9);
  Json intervals = Json::array();
  for (const Interval& interval : meter.intervals()) {
    Json entry = interval_json(interval);
    // Nothing finished in an interval without messages, so it has no average.
    entry["t_avg"] = interval.messages == 0 ? Json()
                                            : Json(us(static_cast<double>(interval.length.ns()) /
                                                      2 / static_cast<double>(interval.messages)));
    intervals.push_back(std::move(entry));
  }
  result["intervals"] = std::move(intervals);
  return result;
}

bool meets_threshold(const TestOptions& options, const Json& result) {
  if (options.min_average > 0 && result.at("BW_average").get<double>() < options.min_average) {
    return false;
  }
  if (options.min_msg_rate > 0 && result.at("MsgRate").get<double>() < options.min_msg_rate) {
    return false;
  }
  if (options.min_gbits > 0) {
    const double gbits = result.at("bytes").get<double>() * 8 / 1e9 /
                         std::max(result.at("seconds").get<double>(), 1e-9);
    return gbits >= options.min_gbits;
  }
  return options.max_usec == 0 || result.at("t_typical").get<double>() <= options.max_usec;
}

Json report_document(TestKind kind, const TestOptions& options, const NicInfo& nic,
                     const std::vector<Json>& results) {
  const TestParameters& parameters = options.parameters;
  std::string_view test = "Send_Latency_Test";
  if (kind == TestKind::kBandwidth) {
    test = parameters.bidirectional ? "Send_Bidirectional_BW_Test" : "Send_BW_Test";
  }
  Json document;
  document["schema_version"] = kReportSchemaVersion;
  document["test_info"] = {{"test", test},
                           {"Device", nic.name},
                           {"Number_of_qps", parameters.connections},
                           {"TX_depth", parameters.tx_depth},
                           {"Mtu", nic.mtu_bytes},
                           {"role", options.host.empty() ? "server" : "client"},
                           {"pacecar_version", PACECAR_VERSION},
                           {"address", nic.address},
                           {"parameters", to_json(parameters)}};
  document["results"] = results.size() == 1 ? results.front() : Json(results);
  return document;
}

}  // namespace pacecar::perf
