// A phase of a test: messages flow until a count or a time is reached. A warm-up and a measurement
// are one phase each.
//
// On the control channel: the client says `run` with the count (0: until told), the server starts
// and says `running`. A phase that is timed, or interrupted, ends with the client's `stop` and the
// server's `stopped`, each with the number of messages that its own senders will have sent, so that
// both know when all of them have arrived. The server's `report` ends every phase.
#pragma once

#include <cstdint>

#include "bench/perf/control_channel.h"
#include "bench/perf/end_report.h"
#include "bench/perf/streams.h"
#include "transport/base/units.h"

namespace pacecar::perf {

struct PhaseGoal {
  uint64_t messages = 0;  // per stream; 0: run for `duration`
  Duration duration;
};

// One end of a test under way.
struct End {
  Context& context;
  size_t nic;
  ControlChannel& channel;
  Streams& streams;
  bool rests;  // while nothing moves; for streams, not for round trips
};

// Watches a phase at the client, and may raise the streams' limits: it is called after each poll,
// with the time, until the goal is reached.
class PhaseWatcher {
 public:
  virtual ~PhaseWatcher() = default;
  virtual void start(Instant now, Streams& streams) = 0;
  virtual void on_poll(Instant now, Streams& streams) = 0;
};

struct PhaseResult {
  Duration elapsed;
  uint64_t messages = 0;  // finished at the client, both directions
  uint64_t sent = 0;      // of them
  EndReport client;
  EndReport server;
};

// Errors: kPeer when the server goes away, gives up, or nothing moves for long.
Result<PhaseResult> run_phase(const End& end, const PhaseGoal& goal, PhaseWatcher& watcher);

// The server's part. `echo`: answer each message with one, instead of sending by itself.
Result<void> serve_phase(const End& end, bool echo);

}  // namespace pacecar::perf
