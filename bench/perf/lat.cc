// `pacecar lat`: client and server pass one message to and fro; a latency is half of a round trip.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "bench/perf/probe.h"
#include "bench/perf/report.h"
#include "bench/perf/subcommands.h"

namespace pacecar::perf {
namespace {

class LatencyProbe : public Probe {
 public:
  using Probe::Probe;

  void start(Instant now, Streams& streams) override {
    start_ = now;
    sent_at_ = now;
    before_ = streams.received();
    streams.senders.front().set_limit(before_ + 1);
  }

  void on_poll(Instant now, Streams& streams) override {
    const uint64_t trips = streams.received() - before_;
    if (trips > half_trips_.count()) {
      half_trips_.record(static_cast<uint64_t>((now - sent_at_).ns()) / 2);
      const bool more = setup_.goal.messages == 0 || trips < setup_.goal.messages;
      if (more) streams.senders.front().set_limit(before_ + trips + 1);
      sent_at_ = now;
    }
    show(now, streams, trips, setup_.goal.messages);
  }

  nlohmann::json result(const PhaseResult& phase) override {
    return latency_result(setup_.size, setup_.options.parameters, phase,
                          finish_intervals(phase.elapsed, half_trips_.count()), half_trips_);
  }

 private:
  std::string rate_text(uint64_t messages, Duration span) const override {
    return fmt::format("{:.2f} usec",
                       messages == 0 ? 0 : span.us() / 2 / static_cast<double>(messages));
  }

  Histogram half_trips_;  // ns
  Instant sent_at_;
  uint64_t before_ = 0;
};

}  // namespace

int run_lat(int argc, char** argv) {
  const TestDefinition definition{TestKind::kLatency, /*echo=*/true,
                                  [](const ProbeSetup& setup) -> std::unique_ptr<Probe> {
                                    return std::make_unique<LatencyProbe>(setup);
                                  }};
  return run_test(definition, argc, argv);
}

}  // namespace pacecar::perf
