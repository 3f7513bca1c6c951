#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/perf/probe.h"
#include "bench/perf/report.h"

namespace pacecar::perf {
namespace {

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
    if (setup_.options.samples == Samples::kSorted) std::ranges::sort(samples_);
    for (const uint64_t ns : samples_) result["samples"].push_back(static_cast<double>(ns) / 1e3);
    return result;
  }

 private:
  std::string rate_text(uint64_t messages, Duration span) const override {
    return fmt::format("{:.2f} usec",
                       messages == 0 ? 0 : span.us() / 2 / static_cast<double>(messages));
  }

  static constexpr size_t kSamples = 1'000'000;  // the most that are kept

  Histogram half_trips_;           // ns
  std::vector<uint64_t> samples_;  // likewise
  const Duration gap_ = Duration::from_ns(static_cast<int64_t>(setup_.options.gap_us * 1e3));
  Instant sent_at_;
  Instant send_at_ = Instant::never();
  uint64_t before_ = 0;
};

}  // namespace

std::unique_ptr<Probe> make_latency_probe(const ProbeSetup& setup) {
  return std::make_unique<LatencyProbe>(setup);
}

}  // namespace pacecar::perf
