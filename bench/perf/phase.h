// A phase of a test: messages flow until a count or a time is reached. A warm-up and a measurement
// are one phase each.
//
// On the control channel: the client sends `run` with the count (0: until `stop`), the server
// starts and sends `running`. A phase that is timed, or interrupted, ends with the client's `stop`
// and the server's `stopped`, each with the number of messages that its own senders will have sent,
// so that both know when all of them have arrived. The server's `report` ends every phase.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/perf/control_channel.h"
#include "bench/perf/streams.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/units.h"

namespace pacecar::perf {

// One end's costs and counters during a phase.
struct EndReport {
  double cpu_s = 0;  // of the whole process, engine included
  // Growth of the counters that are reported (kCounters in phase.cc), and of the device's own.
  Statistics growth;
  // At a sending end, its flow's view at the end (all streams of a test share one flow).
  std::optional<FlowView> flow;
};

nlohmann::json to_json(const FlowView& flow);
nlohmann::json to_json(const EndReport& report);
// Errors: kPeer when a member is missing or impossible.
Result<FlowView> flow_view_from_json(const nlohmann::json& object);
Result<EndReport> end_report_from_json(const nlohmann::json& object);

// Errors: kInvalidArgument for a name that `context` does not count, with all that it does.
Result<void> check_counters(const std::vector<std::string>& names, const Context& context);

struct PhaseGoal {
  uint64_t messages = 0;  // per stream; 0: run for `duration`
  Duration duration;
};

// One end of a test under way.
struct End {
  Context& context;
  ControlChannel& channel;
  Streams& streams;
  bool rests;  // sleeps while nothing moves; for streams, not for round trips
};

class Probe;

struct PhaseResult {
  Duration elapsed;
  uint64_t messages = 0;  // finished at the client, both directions
  uint64_t sent = 0;      // finished sends at the client
  EndReport client;
  EndReport server;
};

// Until the probe's goal is reached. Errors: kPeer when the server goes away, gives up, or nothing
// moves for long.
Result<PhaseResult> run_phase(const End& end, Probe& probe);

// The server's part. `echo`: answer each message with one, instead of sending by itself.
Result<void> serve_phase(const End& end, bool echo);

}  // namespace pacecar::perf
