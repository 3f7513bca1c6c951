#include "bench/ab/metric_info.h"

#include <algorithm>
#include <span>

namespace pacecar::ab {
namespace {

// The metrics that output_parser.h finds in programs' output.
constexpr Metric kProgramMetrics[] = {
    {"bw_gbps", "Gb/s", "average bandwidth", Better::kHigher},
    {"bw_peak_gbps", "Gb/s", "bandwidth of the fastest interval", Better::kHigher},
    {"message_rate_mpps", "M/s", "messages per second", Better::kHigher},
    {"lat_min_us", "us", "least latency", Better::kLower},
    {"lat_max_us", "us", "largest latency", Better::kLower},
    {"lat_typical_us", "us", "typical latency", Better::kLower},
    {"lat_avg_us", "us", "mean latency", Better::kLower},
    {"lat_stdev_us", "us", "standard deviation of the latency", Better::kLower},
    {"lat_p99_us", "us", "latency, 99th percentile", Better::kLower},
    {"lat_p999_us", "us", "latency, 99.9th percentile", Better::kLower},
    {"avg_busbw_gbs", "GB/s", "bus bandwidth, mean over sizes", Better::kHigher},
    {"busbw_gbs", "GB/s", "bus bandwidth, out of place", Better::kHigher},
    {"algbw_gbs", "GB/s", "algorithm bandwidth, out of place", Better::kHigher},
    {"time_us", "us", "time of a collective, out of place", Better::kLower},
    {"in_place_busbw_gbs", "GB/s", "bus bandwidth, in place", Better::kHigher},
    {"in_place_algbw_gbs", "GB/s", "algorithm bandwidth, in place", Better::kHigher},
    {"in_place_time_us", "us", "time of a collective, in place", Better::kLower},
    {"wrong", "", "wrong values", Better::kLower},
    {"gbps", "Gb/s", "payload that arrived", Better::kHigher},
    {"link_share", "", "payload that arrived, of what the link carries", Better::kHigher},
    {"told_share", "", "the same, of the link's nominal rate where that is less", Better::kHigher},
    {"fair_share", "", "payload that arrived, of the fair part beside others", Better::kHigher},
    {"queue_p50_bytes", "B", "queue of the bottleneck, median", Better::kLower},
    {"queue_p99_bytes", "B", "queue of the bottleneck, 99th percentile", Better::kLower},
    {"delay_p99_us", "us", "delay by the bottleneck's queue, 99th percentile", Better::kLower},
    {"settle_ms", "ms", "until a new rate of the link was found", Better::kLower},
    {"drain_ms", "ms", "until the queue was back after it", Better::kLower},
    {"wall_s", "s", "time that the command took", Better::kLower},
};

}  // namespace

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
