// A probe watches one phase at the client, shows how it goes, and makes a result of it. Each kind
// of test is a probe: its counts and its report.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/perf/console.h"
#include "bench/perf/interval_meter.h"
#include "bench/perf/options.h"
#include "bench/perf/phase.h"
#include "bench/perf/progress.h"

namespace pacecar::perf {

struct ProbeSetup {
  uint64_t size;
  PhaseGoal goal;
  const TestOptions& options;
  const Console& console;
  bool visible;  // false for the warm-up
};

class Probe : public PhaseWatcher {
 public:
  explicit Probe(const ProbeSetup& setup);

  virtual nlohmann::json result(const PhaseResult& phase) = 0;
  const LimitsSeen& limits() const { return meter_.limits(); }

 protected:
  // Ends the last interval; called by result().
  const IntervalMeter& finish_intervals(Duration elapsed, uint64_t messages);
  // Called for every poll: `messages` since the phase began, of `expected` (0: timed).
  void show(Instant now, const Streams& streams, uint64_t messages, uint64_t expected);
  // "12.3 MiB/sec": a rate in this kind of test's unit.
  virtual std::string rate_text(uint64_t messages, Duration span) const = 0;

  const ProbeSetup setup_;
  Instant start_;

 private:
  void note_interval();

  IntervalMeter meter_;
  Duration look_interval_;
  Duration next_look_;
  ProgressBar bar_;
};

// A subcommand that measures.
struct TestDefinition {
  TestKind kind;
  bool echo;  // the server answers each message with one
  std::unique_ptr<Probe> (*make_probe)(const ProbeSetup& setup);
};

// Parses the flags and runs the client or the server. Returns an ExitCode.
int run_test(const TestDefinition& definition, int argc, char** argv);

}  // namespace pacecar::perf
