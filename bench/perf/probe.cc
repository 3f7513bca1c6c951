#include "bench/perf/probe.h"

#include <fmt/core.h>

#include <algorithm>

#include "bench/perf/clock.h"

namespace pacecar::perf {
namespace {

constexpr Duration kDefaultInterval = Duration::from_ms(100);
// How often the flow is sampled: several times per interval, and rarely enough to cost nothing.
constexpr Duration kLongestLookInterval = Duration::from_ms(5);
constexpr Duration kShortestLookInterval = Duration::from_us(500);
constexpr int64_t kLooksPerInterval = 4;
constexpr int64_t kWorthALine = 10;  // a rest of 1/10 of an interval gets a line

Duration interval_length(const TestOptions& options) {
  return options.interval_s == 0 ? kDefaultInterval : duration_of(options.interval_s);
}

}  // namespace

Probe::Probe(const ProbeSetup& setup)
    : setup_(setup),
      meter_(interval_length(setup.options), 2 * uint64_t{setup.options.parameters.connections} *
                                                 setup.options.parameters.tx_depth),
      look_interval_(std::clamp(interval_length(setup.options) / kLooksPerInterval,
                                kShortestLookInterval, kLongestLookInterval)),
      bar_(setup.visible && setup.console.interactive()) {}

const IntervalMeter& Probe::finish_intervals(Duration elapsed, uint64_t messages) {
  const Duration begin = meter_.ended();
  meter_.finish(elapsed, messages);
  // An interval that the phase's end cuts a little short is printed; a short remainder after a
  // whole interval is not.
  if ((elapsed - begin) * kWorthALine >= interval_length(setup_.options)) note_interval();
  return meter_;
}

void Probe::note_interval() {
  if (!setup_.visible || setup_.options.interval_s == 0) return;
  const Interval& last = meter_.last();
  setup_.console.note(fmt::format("{:8.2f} - {:8.2f} s  {}", last.start.seconds(),
                                  (last.start + last.length).seconds(),
                                  rate_text(last.messages, last.length)));
}

void Probe::show(Instant now, const Streams& streams, uint64_t messages, uint64_t expected) {
  const Duration elapsed = now - start_;
  if (elapsed >= next_look_) {
    next_look_ = elapsed + look_interval_;
    if (!streams.senders.empty()) meter_.see(streams.senders.front().flow());
  }
  const bool ended = meter_.count(elapsed, messages);
  if (!setup_.visible) return;
  if (ended) note_interval();
  if (bar_.due(elapsed)) {
    const double done = expected != 0
                            ? static_cast<double>(messages) / static_cast<double>(expected)
                            : elapsed.seconds() / setup_.goal.duration.seconds();
    bar_.draw(done, rate_text(messages, elapsed), elapsed);
  }
}

}  // namespace pacecar::perf
