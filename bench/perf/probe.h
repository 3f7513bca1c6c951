// A probe watches one phase at the client, shows its progress, and makes the result. Each kind of
// test has its own.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/cli/console.h"
#include "bench/perf/interval_meter.h"
#include "bench/perf/options.h"
#include "bench/perf/phase.h"

namespace pacecar::perf {

struct ProbeSetup {
  uint64_t size;
  PhaseGoal goal;
  const TestOptions& options;
  const cli::Console& console;
  bool visible;  // false for the warm-up
};

class Probe {
 public:
  explicit Probe(const ProbeSetup& setup);
  virtual ~Probe() = default;

  virtual void start(Instant now, Streams& streams) = 0;
  // Called after each poll until the goal is reached; may raise the streams' limits.
  virtual void on_poll(Instant now, Streams& streams) = 0;
  virtual nlohmann::json result(const PhaseResult& phase) = 0;
  const PhaseGoal& goal() const { return setup_.goal; }
  const LimitsSeen& limits() const { return meter_.limits(); }

 protected:
  // Ends the last interval; called by result().
  const IntervalMeter& finish_intervals(Duration elapsed, uint64_t messages);
  // Shows the progress; called for every poll. `messages` since the phase began, of `expected` (0:
  // the phase is timed).
  void show(Instant now, const Streams& streams, uint64_t messages, uint64_t expected);
  // "12.3 MiB/sec": the rate in the unit of this kind of test.
  virtual std::string rate_text(uint64_t messages, Duration span) const = 0;

  const ProbeSetup setup_;
  Instant start_;

 private:
  void print_interval();

  IntervalMeter meter_;
  Duration sample_interval_;
  Duration next_sample_;
  cli::ProgressBar bar_;
};

// `bw`: messages are sent as fast as the transport takes them, on every connection. `lat`: one
// message goes to and fro; a latency is half of a round trip.
std::unique_ptr<Probe> make_probe(TestKind kind, const ProbeSetup& setup);

// Runs the client or the server between two hosts (session.cc). Returns an ExitCode.
Result<int> run_test(TestKind kind, TestOptions options, const cli::Console& console);

}  // namespace pacecar::perf
