#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "bench/sim/ideal.h"
#include "bench/sim/metrics.h"
#include "bench/sim/spec_file.h"
#include "net_plugin/predict/fluid.h"

namespace pacecar {
namespace {

constexpr int kSamplesPerRoundTrip = 4;
constexpr int kSteadyRoundTrips = 20;
constexpr int kJainRoundTrips = 10;
constexpr int kLastingRoundTrips = 5;
constexpr double kNearly = 0.9;  // of a fair rate
constexpr double kPacketsPerWindow = 4;

bool has_separate_shares(const RunResult& run) {
  if (run.flows.empty() || run.rates.size() != run.flows.size()) return false;
  if (run.rates[0].interval * kSamplesPerRoundTrip > run.base_rtt) return false;
  std::set<std::pair<uint32_t, uint32_t>> pairs;
  return std::ranges::all_of(run.flows, [&](const FlowResult& flow) {
    return flow.start != Duration::max() && pairs.emplace(flow.source, flow.destination).second;
  });
}

Duration end_of(const RunResult& run, const FlowResult& flow) {
  return flow.received == Duration::max() ? run.duration : flow.received;
}

// The time in which all flows run, without its first round trip; empty if `until` is before `from`.
struct Span {
  Duration from;
  Duration until;
};
Span common_time(const RunResult& run) {
  Span span{Duration(), Duration::max()};
  for (const FlowResult& flow : run.flows) {
    span.from = std::max(span.from, flow.start + run.base_rtt);
    span.until = std::min(span.until, end_of(run, flow));
  }
  return span;
}

// Whole samples of a series within `span`.
std::pair<size_t, size_t> samples_in(const Series& series, const Span& span) {
  const int64_t interval = series.interval.ns();
  const auto from = static_cast<size_t>((span.from.ns() + interval - 1) / interval);
  const auto until = static_cast<size_t>(span.until.ns() / interval);
  return {from, std::min(until, series.values.size())};
}

double mean(const Series& series, size_t from, size_t until) {
  if (from >= until) return kNoFigure;
  double sum = 0;
  for (size_t i = from; i < until; ++i) sum += series.values[i];
  return sum / static_cast<double>(until - from);
}

// Max-min fair rates, by flow.
std::vector<double> fair_rates(const std::vector<predict::Route>& flows,
                               const std::vector<predict::Link>& links) {
  std::vector<predict::Allotment> found(flows.size());
  predict::MaxMin(links).solve(flows, found);
  std::vector<double> rates;
  for (const predict::Allotment& each : found) rates.push_back(each.rate);
  return rates;
}

// One run's flows as the solver takes them.
class Shares {
 public:
  Shares(const RunSpec& spec, RunResult& run) : run_(run), mtu_(spec.transport.mtu) {
    const Bytes packet =
        spec.transport.mtu + packet_sizes(spec, spec.fabric.hosts.overhead_bytes).overhead;
    const double payload = static_cast<double>(mtu_) / static_cast<double>(packet);
    // All hosts' outgoing links, then their incoming ones.
    const HostLimits limits = host_limits(spec.topology, spec.fabric.policers);
    for (const auto* rates : {&limits.out, &limits.in}) {
      for (const Rate rate : *rates) {
        links_.push_back({.rate = rate.real_bps() * payload});
      }
    }
    for (const FlowResult& flow : run.flows) {
      predict::Route& route = flows_.emplace_back();
      route.add(run.host_of(flow.source));
      route.add(spec.topology.hosts + run.host_of(flow.destination));
      const auto weight = static_cast<float>(spec.workload.jobs[flow.job].weight);
      for (predict::Route::Use& use : route.uses) use.weight = weight;
    }
    series_.resize(run.flows.size());
    for (const Series& series : run.rates) series_[series.flow] = &series;
  }

  void fill() {
    const Span common = common_time(run_);
    const auto fair = fair_rates(flows_, links_);
    for (size_t i = 0; i < flows_.size(); ++i) {
      FlowShare& share = run_.flows[i].share;
      fill_newcomer(i);
      fill_leaver(i);
      if (common.until <= common.from) continue;
      share.fair_rate = fair[i];
      const auto [from, until] = samples_in(*series_[i], common);
      share.mean_rate = mean(*series_[i], from, until);
      const Duration steady = run_.base_rtt * kSteadyRoundTrips;
      if (common.until - common.from < steady) continue;
      const auto [first, last] = samples_in(*series_[i], {common.until - steady, common.until});
      share.steady_rate = mean(*series_[i], first, last);
    }
  }

 private:
  bool share_a_link(size_t a, size_t b) const {
    return flows_[a].uses[0].link == flows_[b].uses[0].link ||
           flows_[a].uses[1].link == flows_[b].uses[1].link;
  }
  // By flow: the fair rates among the flows that run right after `time`; 0 for the others.
  std::vector<double> fair_rates_after(Duration time) const {
    std::vector<size_t> running;
    std::vector<predict::Route> flows;
    for (size_t i = 0; i < flows_.size(); ++i) {
      if (run_.flows[i].start > time || end_of(run_, run_.flows[i]) <= time) continue;
      running.push_back(i);
      flows.push_back(flows_[i]);
    }
    const auto rates = fair_rates(flows, links_);
    std::vector<double> by_flow(flows_.size(), 0);
    for (size_t i = 0; i < running.size(); ++i) by_flow[running[i]] = rates[i];
    return by_flow;
  }

  // When some flows together first had at least `rate`: averaged over half a round trip or four
  // packets, whichever is longer, and also over the next five round trips, or as many as there are
  // before `until`. max(): not before `until`.
  Duration reached(const std::vector<size_t>& flows, double rate, Duration from,
                   Duration until) const {
    const int64_t interval = run_.rates[0].interval.ns();
    const double packets = kPacketsPerWindow * static_cast<double>(mtu_) * 8e9 / rate;
    const double window = std::max(run_.base_rtt.real_ns() / 2, packets);
    const auto samples = static_cast<size_t>(std::ceil(window / static_cast<double>(interval)));
    const auto lasting = static_cast<size_t>((run_.base_rtt * kLastingRoundTrips).ns() / interval);
    const size_t known = series_[flows[0]]->values.size();
    const size_t past = std::min(static_cast<size_t>(until.ns() / interval), known);
    const auto fast = [&](size_t first, size_t last) {
      double sum = 0;
      for (const size_t flow : flows) sum += mean(*series_[flow], first, last);
      return sum >= rate;
    };
    for (auto end = static_cast<size_t>((from.ns() + interval - 1) / interval); end <= past;
         ++end) {
      if (!fast(end - std::min(end, samples), end)) continue;
      if (end < past && !fast(end, std::min(end + lasting, past))) continue;
      return Duration::from_ns(static_cast<int64_t>(end) * interval);
    }
    return Duration::max();
  }
  // For a flow that starts on a link where another one already runs. A flow that never reaches 90%
  // of its fair rate counts with all of its time.
  void fill_newcomer(size_t flow) {
    FlowResult& newcomer = run_.flows[flow];
    bool busy = false;
    for (size_t i = 0; i < flows_.size(); ++i) {
      busy |= share_a_link(i, flow) && run_.flows[i].start < newcomer.start &&
              end_of(run_, run_.flows[i]) > newcomer.start;
    }
    if (!busy) return;
    const double wanted = kNearly * fair_rates_after(newcomer.start)[flow];
    const Duration end = end_of(run_, newcomer);
    const Duration when = std::min(reached({flow}, wanted, newcomer.start, end), end);
    newcomer.share.newcomer_rtts = (when - newcomer.start).seconds() / run_.base_rtt.seconds();
  }

  // For a flow that ends while other flows share a link with it. No figure if one of the others
  // ends before they use the rate that it leaves.
  void fill_leaver(size_t flow) {
    FlowResult& leaver = run_.flows[flow];
    if (leaver.received == Duration::max()) return;
    const auto fair = fair_rates_after(leaver.received);
    std::vector<size_t> others;
    Duration until = run_.duration;
    double wanted = 0;
    for (size_t i = 0; i < flows_.size(); ++i) {
      if (i == flow || fair[i] == 0 || !share_a_link(i, flow)) continue;
      others.push_back(i);
      until = std::min(until, end_of(run_, run_.flows[i]));
      wanted += kNearly * fair[i];
    }
    if (others.empty()) return;
    const Duration when = reached(others, wanted, leaver.received, until);
    if (when == Duration::max()) return;
    leaver.share.leaver_rtts = (when - leaver.received).seconds() / run_.base_rtt.seconds();
  }

  RunResult& run_;
  Bytes mtu_;
  std::vector<predict::Link> links_;
  std::vector<predict::Route> flows_;
  std::vector<const Series*> series_;
};

}  // namespace

void fill_shares(const RunSpec& spec, RunResult& run) {
  if (has_separate_shares(run)) Shares(spec, run).fill();
}

double least_jain(const RunResult& run) {
  if (!has_separate_shares(run)) return kNoFigure;
  const Series& any = run.rates[0];
  const auto [begin, end] = samples_in(any, common_time(run));
  const auto window = static_cast<size_t>(
      std::ceil(run.base_rtt.seconds() * kJainRoundTrips / any.interval.seconds()));
  double least = kNoFigure;
  for (size_t from = begin; from + window <= end; ++from) {
    std::vector<double> rates;
    for (const Series& series : run.rates) {
      const FlowShare& share = run.flows[series.flow].share;
      rates.push_back(mean(series, from, from + window) / share.fair_rate);
    }
    least = std::fmin(least, jain_index(rates));
  }
  return least;
}

}  // namespace pacecar
