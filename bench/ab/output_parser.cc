#include "bench/ab/output_parser.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <sstream>

#include "bench/cli/json_fields.h"
#include "transport/base/to_number.h"

namespace pacecar::ab {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

constexpr double kGbitsPerMib = 1024 * 1024 * 8 / 1e9;

// The figures of one message size.
struct SizeFigures {
  std::string size;
  std::map<std::string, double> values;
  std::string kind = {};  // "half sum", where a program tries several
};

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

Words words_of(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

std::optional<double> number_of(std::string_view word) {
  const auto value = to_number<double>(word);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

// --- perftest ---

struct Column {
  std::string_view heading;  // as it begins
  const char* metric;        // nullptr: not kept
  bool bandwidth = false;    // its unit is in brackets
};
constexpr Column kColumns[] = {
    {"BW peak", "bw_peak_gbps", true}, {"BW average", "bw_gbps", true},
    {"MsgRate", "message_rate_mpps"},  {"t_min", "lat_min_us"},
    {"t_max", "lat_max_us"},           {"t_typical", "lat_typical_us"},
    {"t_avg", "lat_avg_us"},           {"t_stdev", "lat_stdev_us"},
    {"99% percentile", "lat_p99_us"},  {"99.9% percentile", "lat_p999_us"},
    {"tps average", nullptr},          {"CPU_Util", nullptr},
};

// The columns behind "#bytes #iterations", in the header's order.
std::vector<std::pair<const Column*, double>> columns_of(std::string_view header) {
  std::vector<std::pair<size_t, const Column*>> found;
  for (const Column& column : kColumns) {
    const size_t place = header.find(column.heading);
    if (place != std::string_view::npos) found.emplace_back(place, &column);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::pair<const Column*, double>> columns;
  for (const auto& [place, column] : found) {
    const std::string_view rest = header.substr(place + column->heading.size());
    const bool mebibytes = column->bandwidth && rest.starts_with("[MiB");
    const bool megabytes = column->bandwidth && rest.starts_with("[MB");
    columns.emplace_back(column, mebibytes || megabytes ? kGbitsPerMib : 1);
  }
  return columns;
}

std::vector<SizeFigures> perftest_columns(const std::string& output) {
  std::vector<SizeFigures> sizes;
  std::vector<std::pair<const Column*, double>> columns;
  for (const std::string& line : lines_of(output)) {
    const Words words = words_of(line);
    if (!words.empty() && words[0] == "#bytes") {
      columns = columns_of(line);
      continue;
    }
    if (columns.empty() || words.size() < 3 || !number_of(words[0])) continue;
    SizeFigures figures{words[0], {}};
    for (size_t i = 0; i < columns.size() && i + 2 < words.size(); ++i) {
      const auto value = number_of(words[i + 2]);
      const auto& [column, scale] = columns[i];
      if (value && column->metric != nullptr) figures.values[column->metric] = *value * scale;
    }
    if (!figures.values.empty()) sizes.push_back(std::move(figures));
  }
  return sizes;
}

// --- nccl-tests ---

// size count type [redop] [root] then twice: time algbw busbw #wrong, out of place and in place.
std::optional<SizeFigures> nccl_line(const Words& words) {
  constexpr const char* kNames[] = {"time_us", "algbw_gbs", "busbw_gbs", "wrong"};
  constexpr size_t kFields = std::size(kNames);
  constexpr size_t kLeast = 3 + 2 * kFields;
  if (words.size() < kLeast || !number_of(words[0]) || !number_of(words[1])) return std::nullopt;
  if (number_of(words[2])) return std::nullopt;  // a type is no number
  const size_t out_of_place = words.size() - 2 * kFields;
  SizeFigures figures{
      words[0],
      {},
      fmt::format("{}", fmt::join(words.begin() + 2,
                                  words.begin() + static_cast<ptrdiff_t>(out_of_place), " "))};
  for (size_t i = 0; i < kFields; ++i) {
    const auto out = number_of(words[out_of_place + i]);
    const auto in = number_of(words[out_of_place + kFields + i]);
    if (out) figures.values[kNames[i]] = *out;
    // A collective without an in-place form has N/A.
    if (in && i + 1 < kFields) figures.values[std::string("in_place_") + kNames[i]] = *in;
    if (in && i + 1 == kFields) figures.values[kNames[i]] += *in;
  }
  return figures;
}

std::vector<SizeFigures> nccl_table(const std::string& output, std::optional<double>& average) {
  constexpr std::string_view kAverage = "# Avg bus bandwidth";
  std::vector<SizeFigures> sizes;
  bool table = false;
  for (const std::string& line : lines_of(output)) {
    const Words words = words_of(line);
    if (line.starts_with(kAverage) && !words.empty()) average = number_of(words.back());
    table |= line.starts_with('#') && line.find("busbw") != std::string_view::npos;
    if (!table) continue;
    if (auto figures = nccl_line(words)) sizes.push_back(std::move(*figures));
  }
  std::set<std::string> kinds;
  for (const SizeFigures& figures : sizes) kinds.insert(figures.kind);
  for (SizeFigures& figures : sizes) {
    if (kinds.size() > 1) figures.size += " " + figures.kind;
  }
  return sizes;
}

// --- any other program ---

// The last line, {"metrics": {"NAME": NUMBER, ...}}.
void add_named(const std::string& output, ParsedOutput& parsed) {
  const auto lines = lines_of(output);
  if (lines.empty()) return;
  const Json document = cli::parse_json(lines.back());
  if (!document.is_object() || !document.contains("metrics")) return;
  const Json& metrics = document["metrics"];
  if (!metrics.is_object()) return;
  for (const auto& [name, value] : metrics.items()) {
    if (!value.is_number() || !std::isfinite(value.get<double>())) continue;
    parsed.metrics[name] = value.get<double>();
    parsed.headline.push_back(name);
  }
}

void add_sizes(const std::vector<SizeFigures>& sizes, ParsedOutput& parsed) {
  constexpr std::string_view kHeadlines[] = {"bw_gbps", "lat_typical_us", "lat_p99_us",
                                             "busbw_gbs"};
  for (const SizeFigures& figures : sizes) {
    const std::string part = sizes.size() > 1 ? "@" + figures.size : std::string();
    for (const auto& [name, value] : figures.values) parsed.metrics[name + part] = value;
    for (const std::string_view name : kHeadlines) {
      if (figures.values.contains(std::string(name))) {
        parsed.headline.push_back(std::string(name) + part);
      }
    }
  }
}

// --- what is known of the metrics ---

// The metrics that parse_output() finds.
constexpr Metric kProgramMetrics[] = {
    {"bw_gbps", "Gb/s", "average bandwidth", nullptr, Better::kHigher},
    {"bw_peak_gbps", "Gb/s", "bandwidth of the fastest interval", nullptr, Better::kHigher},
    {"message_rate_mpps", "M/s", "messages per second", nullptr, Better::kHigher},
    {"lat_min_us", "us", "least latency"},
    {"lat_max_us", "us", "largest latency"},
    {"lat_typical_us", "us", "typical latency"},
    {"lat_avg_us", "us", "mean latency"},
    {"lat_stdev_us", "us", "standard deviation of the latency"},
    {"lat_p99_us", "us", "latency, 99th percentile"},
    {"lat_p999_us", "us", "latency, 99.9th percentile"},
    {"avg_busbw_gbs", "GB/s", "bus bandwidth, mean over sizes", nullptr, Better::kHigher},
    {"busbw_gbs", "GB/s", "bus bandwidth, out of place", nullptr, Better::kHigher},
    {"algbw_gbs", "GB/s", "algorithm bandwidth, out of place", nullptr, Better::kHigher},
    {"time_us", "us", "time of a collective, out of place"},
    {"in_place_busbw_gbs", "GB/s", "bus bandwidth, in place", nullptr, Better::kHigher},
    {"in_place_algbw_gbs", "GB/s", "algorithm bandwidth, in place", nullptr, Better::kHigher},
    {"in_place_time_us", "us", "time of a collective, in place"},
    {"wrong", "", "wrong values"},
    {"gbps", "Gb/s", "payload that arrived", nullptr, Better::kHigher},
    {"link_share", "", "payload that arrived, of what the link carries", nullptr, Better::kHigher},
    {"told_share", "", "the same, of the link's nominal rate where that is less", nullptr,
     Better::kHigher},
    {"fair_share", "", "payload that arrived, of the fair part beside others", nullptr,
     Better::kHigher},
    {"queue_p50_bytes", "B", "queue of the bottleneck, median"},
    {"queue_p99_bytes", "B", "queue of the bottleneck, 99th percentile"},
    {"delay_p99_us", "us", "delay by the bottleneck's queue, 99th percentile"},
    {"settle_ms", "ms", "until a new rate of the link was found"},
    {"drain_ms", "ms", "until the queue was back after it"},
    {"wall_s", "s", "time that the command took"},
};

}  // namespace

ParsedOutput parse_output(std::string_view text) {
  const std::string output(text);
  ParsedOutput parsed;
  std::optional<double> average;
  std::vector<SizeFigures> sizes = nccl_table(output, average);
  if (average) {
    parsed.metrics["avg_busbw_gbs"] = *average;
    parsed.headline.push_back("avg_busbw_gbs");
  }
  if (sizes.empty()) sizes = perftest_columns(output);
  add_sizes(sizes, parsed);
  if (parsed.metrics.empty()) add_named(output, parsed);
  return parsed;
}

MetricInfo metric_info(const std::string& name) {
  const size_t at = name.find('@');
  const std::string plain = name.substr(0, at);
  const std::string part = at == std::string::npos ? "" : " (" + name.substr(at + 1) + ")";
  // Programs first: of a simulation, wall_s is no result.
  for (const std::span<const Metric> known :
       {std::span<const Metric>(kProgramMetrics), metrics()}) {
    const auto found = std::ranges::find(known, plain, &Metric::name);
    if (found == known.end()) continue;
    return {std::string(found->doc) + part, std::string(found->unit), found->better};
  }
  return {.label = name};
}

}  // namespace pacecar::ab
