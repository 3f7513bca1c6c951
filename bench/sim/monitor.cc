#include "bench/sim/monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

#include "bench/sim/link_names.h"
#include "bench/sim/metrics.h"

namespace pacecar {
namespace {

// Samples of all queues together: with many switch ports a series has fewer points.
constexpr size_t kQueueSamples = size_t{1} << 24;
constexpr size_t kFewestPoints = 64;

enum Timer : uint32_t { kSample, kWarm };

float bps_of(Rate rate) { return static_cast<float>(rate.bps()); }

}  // namespace

Monitor::Monitor(EventLoop& loop, Fabric& fabric, const RunSpec& spec, const Traffic& traffic,
                 std::vector<uint32_t> flows)
    : loop_(loop),
      fabric_(fabric),
      spec_(spec),
      traffic_(traffic),
      flows_(std::move(flows)),
      timer_(loop.add_timer(*this, kSample)),
      interval_(spec.sampling.interval),
      warm_timer_(loop.add_timer(*this, kWarm)) {
  for (LinkId link = 0; link < fabric.links(); ++link) {
    if (fabric.link_info(link).from >= spec.topology.hosts) ports_.push_back(link);
  }
  for (const uint32_t number : flows_) {
    const WorkloadFlow& flow = spec.workload.flows[number];
    fabric.port(flow.destination).count_arrivals(flow.source);
  }
  const size_t affordable = kQueueSamples / std::max<size_t>(ports_.size(), 1);
  const size_t most = std::min(spec.sampling.points, std::max(affordable, kFewestPoints));
  points_ = most - most % 2;  // so that halving keeps the samples equally spaced
}

void Monitor::begin() {
  sent_before_.assign(fabric_.links(), 0);
  if (spec_.sampling.warm_up > Duration())
    loop_.arm(warm_timer_, loop_.now() + spec_.sampling.warm_up);
  if (interval_ > Duration()) on_event(loop_.now(), kSample);
}

void Monitor::on_event(Instant now, uint32_t what) {
  if (what == kWarm) return end_warm_up();
  if (samples_.size() == points_) halve();
  sample();
  loop_.arm(timer_, now + interval_);
}

void Monitor::end_warm_up() {
  for (LinkId link = 0; link < fabric_.links(); ++link) {
    const LinkStats stats = fabric_.link_stats(link);
    sent_before_[link] = stats.sent_bytes;
    queues_of_warm_up_.push_back(stats.queue_max_bytes);
  }
  fabric_.reset_queue_max();
}

void Monitor::sample() {
  constexpr Bytes kMost = std::numeric_limits<uint32_t>::max();
  Sample& sample = samples_.emplace_back();
  for (const LinkId link : ports_) {
    sample.queues.push_back(
        static_cast<uint32_t>(std::min(fabric_.link_stats(link).queue_bytes, kMost)));
  }
  for (const uint32_t number : flows_) {
    const WorkloadFlow& flow = spec_.workload.flows[number];
    sample.arrived.push_back(fabric_.port(flow.destination).arrived_bytes(flow.source));
    const Explanation why = traffic_.explain(number);
    sample.limits.push_back(
        {bps_of(why.rate), bps_of(why.grant), bps_of(why.core), why.limited_by});
  }
}

// Keeps every second sample.
void Monitor::halve() {
  for (size_t i = 1; 2 * i < samples_.size(); ++i) samples_[i] = std::move(samples_[2 * i]);
  samples_.resize((samples_.size() + 1) / 2);
  interval_ = interval_ * 2;
}

std::string Monitor::name_of(size_t flow) const {
  const WorkloadFlow& named = spec_.workload.flows[flows_[flow]];
  return fmt::format("{}: {} > {}", named.id, named.source, named.destination);
}

Series Monitor::queue_series(size_t port) const {
  Series series{
      .name = link_name(spec_.topology, ports_[port]), .interval = interval_, .values = {}};
  for (const Sample& sample : samples_) series.values.push_back(sample.queues[port]);
  return series;
}

Series Monitor::rate_series(size_t flow) const {
  Series series{.name = name_of(flow), .interval = interval_, .values = {}, .flow = flows_[flow]};
  for (size_t i = 1; i < samples_.size(); ++i) {
    const Bytes bytes = samples_[i].arrived[flow] - samples_[i - 1].arrived[flow];
    series.values.push_back(static_cast<double>(bytes) * 8 / interval_.seconds());
  }
  return series;
}

LimitSeries Monitor::limit_series(size_t flow) const {
  LimitSeries series{.name = name_of(flow), .interval = interval_};
  const std::span begins(samples_.data(), samples_.size() - 1);  // of the intervals
  const auto all = [&](float Limits::*figure) {
    std::vector<double> values;
    for (const Sample& sample : begins) values.push_back(sample.limits[flow].*figure);
    const bool applies = std::ranges::any_of(values, [](double value) { return value > 0; });
    return applies ? values : std::vector<double>();
  };
  series.allowed = all(&Limits::allowed);
  series.grant = all(&Limits::grant);
  series.core = all(&Limits::core);
  for (const Sample& sample : begins) series.limited_by.push_back(sample.limits[flow].limited_by);
  return series;
}

// A cable's mean rate: faults may have changed it.
double Monitor::mean_bps(uint32_t cable, Duration from, Duration until) const {
  double bits = 0;
  Duration begin = from;
  double bps = spec_.topology.cables[cable].rate.real_bps();
  for (const FaultEvent& fault : spec_.faults) {
    if (fault.kind != FaultKind::kCableRate || fault.target != cable || fault.at >= until) continue;
    const Duration end = std::max(begin, fault.at);
    bits += bps * (end - begin).seconds();
    begin = end;
    bps = fault.rate.real_bps();
  }
  return (bits + bps * (until - begin).seconds()) / (until - from).seconds();
}

void Monitor::finish(RunResult& result) const {
  Duration first = Duration::max();
  Duration last;
  for (const FlowResult& flow : result.flows) {
    first = std::min(first, flow.start);
    last = std::max(last, flow.done() ? flow.finish : result.duration);
  }
  first = std::max(first, spec_.sampling.warm_up);
  std::vector<size_t> busiest(ports_.size());
  std::iota(busiest.begin(), busiest.end(), size_t{0});
  for (LinkId link = 0; link < fabric_.links(); ++link) {
    LinkResult& each = result.links.emplace_back();
    each.link = link;
    each.info = fabric_.link_info(link);
    each.name = link_name(spec_.topology, link);
    each.stats = fabric_.link_stats(link);
    if (each.info.from >= spec_.topology.hosts) {
      result.queue_warm_max_bytes =
          std::max(result.queue_warm_max_bytes, each.stats.queue_max_bytes);
    }
    if (!queues_of_warm_up_.empty()) {
      each.stats.queue_max_bytes = std::max(each.stats.queue_max_bytes, queues_of_warm_up_[link]);
    }
    if (last > first) {
      const Bytes sent = each.stats.sent_bytes - sent_before_[link];
      each.utilisation = static_cast<double>(sent) * 8 /
                         (mean_bps(link / 2, first, last) * (last - first).seconds());
    }
    result.pause_time = result.pause_time + each.stats.paused;
  }
  const auto most = [&](size_t port) { return result.links[ports_[port]].stats.queue_max_bytes; };
  std::ranges::stable_sort(busiest, std::greater<>(), most);
  if (!busiest.empty()) {
    result.queue_max_bytes = most(busiest.front());
    if (!samples_.empty()) {
      result.queue_p99_bytes = percentile(queue_series(busiest.front()).values, 99);
    }
  }
  busiest.resize(std::min(busiest.size(), spec_.sampling.series));
  for (const size_t port : busiest) {
    if (!samples_.empty() && most(port) > 0) result.queues.push_back(queue_series(port));
  }
  for (size_t flow = 0; flow < flows_.size() && samples_.size() > 1; ++flow) {
    result.rates.push_back(rate_series(flow));
    result.limits.push_back(limit_series(flow));
  }
}

}  // namespace pacecar
