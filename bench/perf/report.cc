#include "bench/perf/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "bench/cli/json_fields.h"
#include "transport/base/return_if_error.h"

namespace pacecar::perf {
namespace {

using Json = nlohmann::json;

constexpr int kMinColumnWidth = 10;
constexpr double kMaxFigure = std::numeric_limits<double>::max();

double rate_of(uint64_t messages, Duration span) {
  return span > Duration() ? static_cast<double>(messages) / span.seconds() : 0;
}

double us(double ns) { return ns / 1e3; }

Json end_json(const EndReport& end, double bytes) {
  Json object = to_json(end);
  object["cpu_s_per_gb"] = bytes > 0 ? end.cpu_s / (bytes / 1e9) : 0;
  return object;
}

// Members common to both kinds of result. `figure_of` is that of an interval, named `figure`.
template <typename FigureOf>
Json common_result(uint64_t size, uint64_t iterations, const TestParameters& parameters,
                   const PhaseResult& phase, const IntervalMeter& meter, const char* figure,
                   FigureOf figure_of) {
  const double bytes = static_cast<double>(phase.messages) * static_cast<double>(size);
  const double seconds = phase.elapsed.seconds();
  Json result = {{"MsgSize", size},
                 {"n_iterations", iterations},
                 {"seconds", seconds},
                 {"bytes", phase.messages * size},
                 {"limited_by", meter.limits().shares()},
                 {"client", end_json(phase.client, bytes)},
                 {"server", end_json(phase.server, bytes)},
                 {"intervals", Json::array()}};
  if (parameters.cpu_util) {
    result["CPU_Util"] = seconds > 0 ? 100 * phase.client.cpu_s / seconds : 0;
  }
  for (const Interval& interval : meter.intervals()) {
    const LimitsSeen& limits = interval.limits;
    result["intervals"].push_back(
        {{"start_s", interval.start.seconds()},
         {"seconds", interval.length.seconds()},
         {"messages", interval.messages},
         {"limited_by", limits.shares()},
         {"congestion_control", limits.any() ? to_json(limits.last()) : Json()},
         {figure, figure_of(interval)}});
  }
  return result;
}

int width_of(const Column& column) {
  return std::max(kMinColumnWidth, static_cast<int>(column.heading.size()));
}

}  // namespace

std::vector<Column> columns_of(TestKind kind, const TestParameters& parameters) {
  const std::string unit = fmt::format("[{}]", bandwidth_unit(parameters.gigabits));
  const int decimals = parameters.gigabits ? 3 : 2;
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
    columns.insert(columns.end(), {{"BW peak" + unit, "BW_peak", decimals},
                                   {"BW average" + unit, "BW_average", decimals},
                                   {"MsgRate[Mpps]", "MsgRate", 6}});
  }
  if (parameters.report_both) {
    columns.push_back({"sent" + unit, "BW_sent", 2});
    columns.push_back({"received" + unit, "BW_received", 2});
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
    ASSIGN_OR_RETURN(const auto value, cli::number_field(result, column.key, 0, kMaxFigure));
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
  Json result = common_result(
      size, phase.messages, parameters, phase, meter, "BW",
      [&](const Interval& interval) { return bandwidth(interval.per_second(), size, gigabits); });
  // The peak of a run shorter than an interval is its average.
  const double peak = options.no_peak ? 0 : std::max(average, meter.peak());
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
  return result;
}

Json latency_result(uint64_t size, const TestParameters& parameters, const PhaseResult& phase,
                    const IntervalMeter& meter, const Histogram& half_trips) {
  const auto percentile = [&half_trips](double p) {
    return us(static_cast<double>(half_trips.value_at_percentile(p)));
  };
  const auto average = [](const Interval& interval) {
    // Nothing finished in an interval without messages, so it has no average.
    if (interval.messages == 0) return Json();
    return Json(us(interval.length.real_ns() / 2 / static_cast<double>(interval.messages)));
  };
  Json result = common_result(size, half_trips.count(), parameters, phase, meter, "t_avg", average);
  result["t_min"] = us(static_cast<double>(half_trips.min()));
  result["t_max"] = us(static_cast<double>(half_trips.max()));
  result["t_typical"] = percentile(50);
  result["t_avg"] = us(half_trips.mean());
  result["t_stdev"] = us(half_trips.stdev());
  result["percentile_99"] = percentile(99);
  result["percentile_99.9"] = percentile(99.9);
  return result;
}

std::string missed_threshold(const TestOptions& options, const Json& result) {
  // NaN, which meets no threshold, if the figure is missing: a peer may have sent the result.
  const auto figure = [&result](const char* key) {
    return cli::number_field(result, key, 0, kMaxFigure).value_or(std::nan(""));
  };
  struct Threshold {
    const char* flag;
    double bound;  // 0: none
    double value;
    std::string_view unit;
    bool least = true;
  };
  const double gbits = figure("bytes") * 8 / 1e9 / std::max(figure("seconds"), 1e-9);
  for (const auto& [flag, bound, value, unit, least] :
       {Threshold{"--limit_bw", options.min_average, figure("BW_average"),
                  bandwidth_unit(options.parameters.gigabits)},
        Threshold{"--limit_msgrate", options.min_msg_rate, figure("MsgRate"), "Mpps"},
        Threshold{"--min-gbits", options.min_gbits, gbits, "Gb/s"},
        Threshold{"--max-usec", options.max_usec, figure("t_typical"), "us", false}}) {
    if (bound == 0 || (least ? value >= bound : value <= bound)) continue;
    return fmt::format("messages of {:.0f} bytes: {:.4g} {} is {} the {:g} of {}",
                       figure("MsgSize"), value, unit, least ? "below" : "above", bound, flag);
  }
  return {};
}

std::vector<std::string> further_lines(const TestOptions& options, const Json& result) {
  std::vector<std::string> lines;
  for (const std::string& name : options.counters) {
    const auto grown = [&](const char* end) -> uint64_t {
      const auto member = [](const Json& of, const std::string& key) {
        return of.is_object() ? of.value(key, Json()) : Json();
      };
      for (const char* kind : {"counters", "device_counters"}) {
        const Json count = member(member(member(result, end), kind), name);
        if (count.is_number_unsigned()) return count.get<uint64_t>();
      }
      return 0;
    };
    lines.push_back(
        fmt::format(" {}: client {}, server {}", name, grown("client"), grown("server")));
  }
  if (options.samples == Samples::kNone || !result.contains("samples")) return lines;
  lines.emplace_back("#, usec");  // perftest's form
  size_t number = 0;
  for (const Json& sample : result.at("samples")) {
    if (sample.is_number())
      lines.push_back(fmt::format("{}, {:.2f}", ++number, sample.get<double>()));
  }
  return lines;
}

Json report_document(TestKind kind, const TestOptions& options, const NicInfo& nic,
                     const std::vector<Json>& results) {
  const TestParameters& parameters = options.parameters;
  std::string_view test = "Send_Latency_Test";
  if (kind == TestKind::kBandwidth) {
    test = parameters.bidirectional ? "Send_Bidirectional_BW_Test" : "Send_BW_Test";
  }
  return {{"schema_version", kReportSchemaVersion},
          {"test_info",
           {{"test", test},
            {"Device", nic.name},
            {"Number_of_qps", parameters.connections},
            {"TX_depth", parameters.tx_depth},
            {"Mtu", nic.mtu_bytes},
            {"role", options.host.empty() ? "server" : "client"},
            {"pacecar_version", PACECAR_VERSION},
            {"address", nic.address},
            {"parameters", to_json(parameters)}}},
          {"results", results.size() == 1 ? results.front() : Json(results)}};
}

}  // namespace pacecar::perf
