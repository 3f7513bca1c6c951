#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "bench/perf/probe.h"
#include "bench/perf/report.h"

namespace pacecar::perf {
namespace {

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

}  // namespace

std::unique_ptr<Probe> make_bandwidth_probe(const ProbeSetup& setup) {
  return std::make_unique<BandwidthProbe>(setup);
}

}  // namespace pacecar::perf
