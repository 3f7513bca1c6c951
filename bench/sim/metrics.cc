#include "bench/sim/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "bench/sim/spec_reader.h"
#include "transport/base/edit_distance.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

// Size classes of the published comparisons on WebSearch and FB_Hadoop.
constexpr Bytes kShort = 10'000;
constexpr Bytes kLong = 1'000'000;
constexpr Bytes kAny = std::numeric_limits<Bytes>::max();

template <typename Value>
std::vector<double> of_done_flows(const RunResult& run, Value value, Bytes from = 0,
                                  Bytes below = kAny) {
  std::vector<double> values;
  for (const FlowResult& flow : run.flows) {
    if (flow.done() && flow.bytes >= from && flow.bytes < below) values.push_back(value(flow));
  }
  return values;
}

// The largest value; no figure if there is none.
template <typename List, typename Value>
double largest_of(const List& list, Value value) {
  double most = kNoFigure;
  for (const auto& each : list) most = std::fmax(most, std::invoke(value, each));
  return most;
}

double fct_us(const FlowResult& flow) { return (flow.finish - flow.start).us(); }

double finish_us(const FlowResult& flow) { return flow.finish.us(); }

double slowdown(const FlowResult& flow) { return fct_us(flow) / std::max(flow.ideal.us(), 1e-3); }

template <int kPerMille, Bytes kFrom = 0, Bytes kBelow = kAny, auto* kFigure = fct_us>
double fct(const RunResult& run) {
  return percentile(of_done_flows(run, kFigure, kFrom, kBelow), kPerMille / 10.0);
}

template <int kPerMille, Bytes kFrom = 0, Bytes kBelow = kAny>
constexpr auto slowdowns = fct<kPerMille, kFrom, kBelow, slowdown>;

double mean_of(const std::vector<double>& values) {
  if (values.empty()) return kNoFigure;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double mean_fct(const RunResult& run) { return mean_of(of_done_flows(run, fct_us)); }

double finish(const RunResult& run) {
  const auto times = of_done_flows(run, finish_us);
  // A run that was cut off has no last finish.
  return times.size() == run.flows.size() ? percentile(times, 100) : kNoFigure;
}

// The times of the operations of all jobs, without the first fifth: from the first start to the
// last arrival. None when one is not done.
std::vector<double> operation_times(const RunResult& run) {
  std::map<std::pair<uint32_t, uint32_t>, std::pair<Duration, Duration>> spans;
  uint32_t last = 0;
  for (const FlowResult& flow : run.flows) {
    if (flow.received == Duration::max()) return {};
    auto& [begin, end] =
        spans.try_emplace({flow.job, flow.operation}, flow.start, flow.received).first->second;
    begin = std::min(begin, flow.start);
    end = std::max(end, flow.received);
    last = std::max(last, flow.operation);
  }
  std::vector<double> times;
  for (const auto& [key, span] : spans) {
    if (key.second * 5 >= last) times.push_back((span.second - span.first).us());
  }
  return times;
}

double mean_operation(const RunResult& run) { return mean_of(operation_times(run)); }

template <int kPercent>
double operation(const RunResult& run) {
  return percentile(operation_times(run), kPercent);
}

// The largest difference among flows of the same size; NaN with an unfinished flow.
double fct_spread(const RunResult& run) {
  std::map<Bytes, std::pair<double, double>> extremes;
  for (const FlowResult& flow : run.flows) {
    if (!flow.done()) return kNoFigure;
    const auto [found, added] = extremes.try_emplace(flow.bytes, fct_us(flow), fct_us(flow));
    auto& [least, most] = found->second;
    least = std::min(least, fct_us(flow));
    most = std::max(most, fct_us(flow));
  }
  double spread = kNoFigure;
  for (const auto& [bytes, times] : extremes) {
    spread = std::fmax(spread, times.second / std::max(times.first, 1e-3));
  }
  return spread;
}

// A lower bound of the last finish, of all directions of all hosts' links: the first start of its
// flows, the serialization of all their packets, and what one flow alone takes beyond that of its
// packets. Triggers are not taken into account.
double least_finish_us(const RunResult& run) {
  struct LinkUse {
    Duration start = Duration::max();
    Duration busy;
    Duration beyond = Duration::max();
  };
  std::map<std::pair<uint32_t, bool>, LinkUse> sides;
  for (const FlowResult& flow : run.flows) {
    if (flow.start == Duration::max()) return kNoFigure;
    for (const bool source : {true, false}) {
      LinkUse& side = sides[{run.host_of(source ? flow.source : flow.destination), source}];
      const Duration packets = source ? flow.at_source : flow.at_destination;
      side.start = std::min(side.start, flow.start);
      side.busy = side.busy + packets;
      side.beyond = std::min(side.beyond, flow.ideal - packets);
    }
  }
  return largest_of(sides, [](const auto& side) {
    return (side.second.start + side.second.busy + side.second.beyond).us();
  });
}

double finish_ratio(const RunResult& run) { return finish(run) / least_finish_us(run); }

// A figure that the result has.
template <auto... kPath>
double figure(const RunResult& run) {
  return static_cast<double>((run.*....*kPath));
}

template <double FlowShare::*kFigure>
double largest(const RunResult& run) {
  return largest_of(run.flows, [](const FlowResult& flow) { return flow.share.*kFigure; });
}

double share(const RunResult& run) {
  double had = 0;
  double fair = 0;
  for (const FlowResult& flow : run.flows) {
    had += flow.share.mean_rate;
    fair += flow.share.fair_rate;
  }
  return fair == 0 ? kNoFigure : had / fair;
}

double max_min_error(const RunResult& run) {
  return largest_of(run.flows, [](const FlowResult& flow) {
    return std::abs(flow.share.steady_rate - flow.share.fair_rate) / flow.share.fair_rate;
  });
}

// Flows that the receiver does not have completely do not count.
double goodput(const RunResult& run) {
  Duration begin = Duration::max();
  Duration end;
  Bytes bytes = 0;
  for (const FlowResult& flow : run.flows) {
    if (flow.received == Duration::max()) continue;
    begin = std::min(begin, flow.start);
    end = std::max(end, flow.received);
    bytes += flow.bytes;
  }
  if (bytes == 0 || end <= begin) return kNoFigure;
  return static_cast<double>(bytes) * 8 / (end - begin).real_ns();
}

double jain(const RunResult& run) {
  std::vector<double> rates;
  for (const FlowResult& flow : run.flows) {
    rates.push_back(flow.done() ? static_cast<double>(flow.bytes) / std::max(fct_us(flow), 1e-3)
                                : 0);
  }
  return jain_index(rates);
}

double busiest(const RunResult& run) { return largest_of(run.links, &LinkResult::utilisation); }

// Samples are kept of the busiest queues, which include the largest one.
double largest_sample(const RunResult& run) {
  return largest_of(run.queues,
                    [](const Series& queue) { return largest_of(queue.values, std::identity()); });
}

double completed(const RunResult& run) {
  return static_cast<double>(of_done_flows(run, fct_us).size());
}

double dropped(const RunResult& run, FabricDrop cause) {
  return static_cast<double>(run.fabric.dropped_for(cause));
}

constexpr auto kHigher = Better::kHigher;
constexpr auto kNeither = Better::kNeither;
using Run = const RunResult&;

// Computed from flows, so that one job has them, too.
constexpr Metric kOfFlows[] = {
    {"finish_us", "us", "finish of the last flow, at its sender", finish},
    {"first_finish_us", "us", "finish of the first flow, at its sender", fct<0, 0, kAny, finish_us>,
     kNeither},
    {"operation_mean_us", "us", "duration of an operation, mean", mean_operation},
    {"operation_p50_us", "us", "duration of an operation, median", operation<50>},
    {"operation_p99_us", "us", "duration of an operation, 99th percentile", operation<99>},
    {"finish_ratio", "", "finish over the least that the links at hosts allow", finish_ratio},
    {"flows_done", "", "flows done in time", completed, kHigher},
    {"fct_mean_us", "us", "flow completion time, mean", mean_fct},
    {"fct_p50_us", "us", "flow completion time, median", fct<500>},
    {"fct_p99_us", "us", "flow completion time, 99th percentile", fct<990>},
    {"fct_p999_us", "us", "flow completion time, 99.9th percentile", fct<999>},
    {"fct_max_us", "us", "flow completion time, longest", fct<1000>},
    {"fct_p50_short_us", "us", "completion time of flows below 10 KB, median", fct<500, 0, kShort>},
    {"fct_p99_short_us", "us", "completion time of flows below 10 KB, 99th percentile",
     fct<990, 0, kShort>},
    {"fct_p50_long_us", "us", "completion time of flows from 1 MB on, median", fct<500, kLong>},
    {"fct_p99_long_us", "us", "completion time of flows from 1 MB on, 99th percentile",
     fct<990, kLong>},
    {"fct_spread", "", "slowest over fastest among flows of the same size", fct_spread},
    {"slowdown_p50", "", "slowdown against the same flow alone, median", slowdowns<500>},
    {"slowdown_p99", "", "slowdown against the same flow alone, 99th percentile", slowdowns<990>},
    {"slowdown_max", "", "slowdown against the same flow alone, largest", slowdowns<1000>},
    {"slowdown_p99_short", "", "slowdown of flows below 10 KB, 99th percentile",
     slowdowns<990, 0, kShort>},
    {"slowdown_p99_medium", "", "slowdown of flows from 10 KB to 1 MB, 99th percentile",
     slowdowns<990, kShort, kLong>},
    {"slowdown_p99_long", "", "slowdown of flows from 1 MB on, 99th percentile",
     slowdowns<990, kLong>},
    {"slowdown_p50_long", "", "slowdown of flows from 1 MB on, median", slowdowns<500, kLong>},
    {"goodput_gbps", "Gb/s", "goodput: payload of whole flows over the time they took", goodput,
     kHigher},
    {"jain", "", "Jain's fairness index of the flows' mean rates", jain, kHigher},
    {"jain_min", "", "least Jain's index over 10 round trips, of rates over fair ones", least_jain,
     kHigher},
    {"share", "", "rate over the max-min fair one, while all flows of the run are under way", share,
     kNeither},
    {"maxmin_error", "", "largest relative difference of a flow's rate from the fair one",
     max_min_error},
    {"newcomer_rtts", "rtt", "until a flow on a busy link has 90% of its fair rate, longest",
     largest<&FlowShare::newcomer_rtts>},
    {"leaver_rtts", "rtt", "until what a flow leaves is used by the others, longest",
     largest<&FlowShare::leaver_rtts>},
};
constexpr Metric kOfFabric[] = {
    {"queue_max_bytes", "bytes", "largest data queue of any switch port",
     figure<&RunResult::queue_max_bytes>},
    {"queue_warm_max_bytes", "bytes", "the same since the end of the warm-up",
     figure<&RunResult::queue_warm_max_bytes>},
    {"queue_sample_max_bytes", "bytes", "largest sample of any switch port's data queue",
     largest_sample},
    {"queue_p99_bytes", "bytes", "data queue of the busiest switch port, 99th percentile",
     figure<&RunResult::queue_p99_bytes>},
    {"buffer_max_bytes", "bytes", "largest buffer in use in any switch",
     figure<&RunResult::switch_buffer_max_bytes>},
    {"utilisation_max", "", "utilisation of the busiest link", busiest, kNeither},
    {"drops", "packets", "drops by full queues and inboxes",
     [](Run run) {
       return dropped(run, FabricDrop::kQueueFull) + dropped(run, FabricDrop::kInboxFull);
     }},
    {"policed", "packets", "drops by policers",
     [](Run run) { return dropped(run, FabricDrop::kPolicer); }},
    {"drops_all", "packets", "drops for any cause, injected faults included",
     [](Run run) { return static_cast<double>(run.fabric.all_dropped()); }},
    {"trims", "packets", "payloads cut off by full queues",
     figure<&RunResult::fabric, &FabricCounters::trimmed>},
    {"marks", "packets", "ECN marks", figure<&RunResult::fabric, &FabricCounters::marked>},
    {"pauses", "frames", "PFC pause frames", figure<&RunResult::fabric, &FabricCounters::pauses>},
    {"pause_us", "us", "time paused by PFC, all links together",
     [](Run run) { return run.pause_time.us(); }},
    {"retransmissions", "packets", "retransmissions",
     figure<&RunResult::nics, &NicCounters::packets_retransmitted>},
    {"timeouts", "", "timeouts", figure<&RunResult::nics, &NicCounters::timeouts>},
    {"events", "", "simulated events", figure<&RunResult::events>, kNeither},
    {"wall_s", "s", "wall-clock time of the simulation", figure<&RunResult::wall_seconds>,
     kNeither},
};

// The flows of one job, and what metrics of flows need besides.
RunResult of_job(const RunResult& run, uint32_t job) {
  RunResult part;
  part.duration = run.duration;
  part.base_rtt = run.base_rtt;
  part.processes = run.processes;
  std::vector<size_t> place(run.flows.size(), SIZE_MAX);
  for (size_t i = 0; i < run.flows.size(); ++i) {
    if (run.flows[i].job != job) continue;
    place[i] = part.flows.size();
    part.flows.push_back(run.flows[i]);
  }
  for (const Series& series : run.rates) {
    if (place[series.flow] == SIZE_MAX) continue;
    part.rates.push_back(series);
    part.rates.back().flow = place[series.flow];
  }
  return part;
}

}  // namespace

std::span<const Metric> metrics() {
  static const std::vector<Metric> all = [] {
    std::vector<Metric> metrics(std::begin(kOfFlows), std::end(kOfFlows));
    for (Metric& metric : metrics) metric.of_flows = true;
    metrics.insert(metrics.end(), std::begin(kOfFabric), std::end(kOfFabric));
    return metrics;
  }();
  return all;
}

Result<const Metric*> find_metric(std::string_view name) {
  const size_t at = name.find('@');
  const std::string_view plain = name.substr(0, at);
  const auto found = std::ranges::find(metrics(), plain, &Metric::name);
  if (found == metrics().end()) {
    const std::vector<std::string_view> known = names_of(metrics());
    return invalid("there is no metric '{}'{}: use one of {}", plain, did_you_mean(plain, known),
                   fmt::join(known, ", "));
  }
  if (at != std::string_view::npos && !found->of_flows) {
    return invalid("metric '{}' is one of the whole fabric: leave out '{}'", plain,
                   name.substr(at));
  }
  return &*found;
}

Result<double> metric_value(const RunResult& run, std::string_view name) {
  ASSIGN_OR_RETURN(const auto metric, find_metric(name));
  const size_t at = name.find('@');
  if (at == std::string_view::npos) return metric->value(run);
  const auto job = std::ranges::find(run.jobs, name.substr(at + 1));
  if (job == run.jobs.end()) {
    return invalid("'{}' asks for a job that the workload does not have: it has {}", name,
                   fmt::join(run.jobs, ", "));
  }
  const auto number = static_cast<uint32_t>(job - run.jobs.begin());
  return metric->value(of_job(run, number));
}

double percentile(std::vector<double> values, double percent) {
  if (values.empty()) return kNoFigure;
  const auto n = static_cast<double>(values.size());
  const auto rank = static_cast<size_t>(std::max(std::ceil(n * percent / 100), 1.0));
  const auto at = values.begin() + static_cast<ptrdiff_t>(std::min(rank, values.size()) - 1);
  std::ranges::nth_element(values, at);
  return *at;
}

double jain_index(const std::vector<double>& values) {
  double sum = 0;
  double squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  return squares == 0 ? kNoFigure : sum * sum / (static_cast<double>(values.size()) * squares);
}

}  // namespace pacecar
