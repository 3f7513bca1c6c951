#include "bench/perf/probe.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/cli/clock.h"
#include "bench/perf/report.h"

namespace pacecar::perf {
namespace {

constexpr Duration kDefaultInterval = Duration::from_ms(100);
// How often the flow is sampled: several times per interval, and rarely enough to cost nothing.
constexpr Duration kLongestSampleInterval = Duration::from_ms(5);
constexpr Duration kShortestSampleInterval = Duration::from_us(500);
constexpr int64_t kSamplesPerInterval = 4;
constexpr int64_t kWorthALine = 10;  // a rest of 1/10 of an interval gets a line

Duration interval_length(const TestOptions& options) {
  return options.interval_s == 0 ? kDefaultInterval : cli::duration_of(options.interval_s);
}

class BandwidthProbe : public Probe {
 public:
  using Probe::Probe;

  void start(Instant now, Streams& streams) override {
    start_ = now;
    before_ = streams.finished();
    expected_ = setup_.goal.messages * (streams.senders.size() + streams.receivers.size());
  }

  void on_poll(Instant now, Streams& streams) override {
    show(now, streams, streams.finished() - before_, expected_);
  }

  nlohmann::json result(const PhaseResult& phase) override {
    return bandwidth_result(setup_.size, setup_.options, phase,
                            finish_intervals(phase.elapsed, phase.messages));
  }

 private:
  std::string rate_text(uint64_t messages, Duration span) const override {
    const bool gigabits = setup_.options.parameters.gigabits;
    return fmt::format(
        "{:.2f} {}",
        bandwidth(static_cast<double>(messages) / span.seconds(), setup_.size, gigabits),
        bandwidth_unit(gigabits));
  }

  uint64_t before_ = 0;
  uint64_t expected_ = 0;
};

class LatencyProbe : public Probe {
 public:
  using Probe::Probe;

  void start(Instant now, Streams& streams) override {
    start_ = now;
    sent_at_ = now;
    before_ = streams.received();
    if (setup_.visible && setup_.options.samples != Samples::kNone) samples_.reserve(kSamples);
    streams.senders.front().set_limit(before_ + 1);
  }

  void on_poll(Instant now, Streams& streams) override {
    const uint64_t trips = streams.received() - before_;
    if (trips > half_trips_.count()) {
      const uint64_t half_trip = static_cast<uint64_t>((now - sent_at_).ns()) / 2;
      half_trips_.record(half_trip);
      if (samples_.size() < samples_.capacity()) samples_.push_back(half_trip);
      const bool more = setup_.goal.messages == 0 || trips < setup_.goal.messages;
      if (more) send_at_ = now + gap_;
    }
    if (now >= send_at_) {
      streams.senders.front().set_limit(before_ + trips + 1);
      sent_at_ = now;
      send_at_ = Instant::never();
    }
    show(now, streams, trips, setup_.goal.messages);
  }

  nlohmann::json result(const PhaseResult& phase) override {
    nlohmann::json result =
        latency_result(setup_.size, setup_.options.parameters, phase,
                       finish_intervals(phase.elapsed, half_trips_.count()), half_trips_);
    if (setup_.options.gap_us > 0) {
      for (nlohmann::json& interval : result["intervals"]) interval["t_avg"] = nullptr;
    }
    if (setup_.options.samples == Samples::kSorted) std::ranges::sort(samples_);
    for (const uint64_t ns : samples_) result["samples"].push_back(static_cast<double>(ns) / 1e3);
    return result;
  }

 private:
  std::string rate_text(uint64_t messages, Duration span) const override {
    // A span does not say which part of it were gaps.
    if (messages == 0 || setup_.options.gap_us > 0) return fmt::format("{} messages", messages);
    return fmt::format("{:.2f} usec", span.us() / 2 / static_cast<double>(messages));
  }

  static constexpr size_t kSamples = 1'000'000;  // the most that are kept

  Histogram half_trips_;           // ns
  std::vector<uint64_t> samples_;  // ns
  const Duration gap_ =            // not in the warm-up
      Duration::from_ns(setup_.visible ? static_cast<int64_t>(setup_.options.gap_us * 1e3) : 0);
  Instant sent_at_;
  Instant send_at_ = Instant::never();
  uint64_t before_ = 0;
};

}  // namespace

Probe::Probe(const ProbeSetup& setup)
    : setup_(setup),
      meter_(interval_length(setup.options),
             2 * uint64_t{setup.options.parameters.connections} * setup.options.parameters.tx_depth,
             setup.options.interval_s != 0),
      sample_interval_(std::clamp(interval_length(setup.options) / kSamplesPerInterval,
                                  kShortestSampleInterval, kLongestSampleInterval)),
      bar_(setup.visible && setup.console.interactive()) {}

const IntervalMeter& Probe::finish_intervals(Duration elapsed, uint64_t messages) {
  const Duration begin = meter_.ended();
  meter_.finish(elapsed, messages);
  // An interval that the phase's end cuts a little short is printed; a short remainder after a
  // whole interval is not.
  if ((elapsed - begin) * kWorthALine >= interval_length(setup_.options)) print_interval();
  return meter_;
}

void Probe::print_interval() {
  if (!setup_.visible || setup_.options.interval_s == 0) return;
  const Interval& last = meter_.last();
  setup_.console.note(fmt::format("{:8.2f} - {:8.2f} s  {}", last.start.seconds(),
                                  (last.start + last.length).seconds(),
                                  rate_text(last.messages, last.length)));
}

void Probe::show(Instant now, const Streams& streams, uint64_t messages, uint64_t expected) {
  const Duration elapsed = now - start_;
  if (elapsed >= next_sample_) {
    next_sample_ = elapsed + sample_interval_;
    if (!streams.senders.empty()) meter_.sample(streams.senders.front().flow());
  }
  const bool ended = meter_.count(elapsed, messages);
  if (!setup_.visible) return;
  if (ended) print_interval();
  if (bar_.due(elapsed)) {
    const double done = expected != 0
                            ? static_cast<double>(messages) / static_cast<double>(expected)
                            : elapsed.seconds() / setup_.goal.duration.seconds();
    bar_.draw(done, rate_text(messages, elapsed), elapsed);
  }
}

std::unique_ptr<Probe> make_probe(TestKind kind, const ProbeSetup& setup) {
  if (kind == TestKind::kLatency) return std::make_unique<LatencyProbe>(setup);
  return std::make_unique<BandwidthProbe>(setup);
}

}  // namespace pacecar::perf
