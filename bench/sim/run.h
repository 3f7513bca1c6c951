// Runs one experiment: the production stack at every host of a simulated fabric, driven by a
// workload on virtual time. README.md describes its two phases. Thread rule: one thread per run.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "bench/sim/run_spec.h"
#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/message/messenger.h"
#include "transport/nic/caps.h"
#include "transport/sim/fabric.h"

namespace pacecar {

inline constexpr double kNoFigure = std::numeric_limits<double>::quiet_NaN();

// A flow's share of common links (metrics.h). Rates in bits per second of payload; kNoFigure: none.
struct FlowShare {
  double fair_rate = kNoFigure;    // max-min, while all flows run
  double mean_rate = kNoFigure;    // over all of that time
  double steady_rate = kNoFigure;  // over the last 20 round trips of that time
  double newcomer_rtts = kNoFigure;
  double leaver_rtts = kNoFigure;
};

struct FlowResult {
  uint64_t id = 0;
  uint32_t source = 0;  // process
  uint32_t destination = 0;
  uint32_t job = 0;
  uint32_t operation = 0;
  Bytes bytes = 0;
  Duration start = Duration::max();     // after the begin of the run; max(): never started
  Duration received = Duration::max();  // when the receiver had all bytes; max(): not done
  Duration finish = Duration::max();    // when the sender had the last acknowledgement; max(): not
  Duration ideal;                       // from start to finish, alone in the fabric
  Duration at_source;                   // serialization on the links of the source host
  Duration at_destination;              // serialization on the links of the destination host
  FlowShare share;

  bool done() const { return finish != Duration::max(); }
};

// Equidistant samples from time 0.
struct Series {
  std::string name;
  Duration interval;
  std::vector<double> values;
  size_t flow = 0;  // of a rate: index into the flows
};

// A flow's allowed rate and its limits, at equidistant samples from time 0. In bits per second with
// packet overhead; empty: never applied.
struct LimitSeries {
  std::string name;
  Duration interval;
  std::vector<double> allowed;
  std::vector<double> grant;  // by the receiver
  std::vector<double> core;   // what the network carries, as learnt by the sender
  std::vector<LimitedBy> limited_by;
};

struct LinkResult {
  LinkId link = 0;
  LinkInfo info;
  std::string name;        // "leaf 0 > host 3"
  LinkStats stats;         // since time 0
  double utilisation = 0;  // of the time from the first flow's start to the last one's end
};

struct RunResult {
  std::string name;
  std::string congestion_control;
  std::string hosts;  // the model
  uint64_t seed = 0;
  uint32_t processes = 1;  // of each host
  std::vector<std::string> jobs;
  std::vector<FlowResult> flows;
  Duration duration;               // of virtual time, from time 0 to the end of the run
  bool complete = false;           // every flow is done
  Bytes queue_max_bytes = 0;       // largest data queue of a switch port
  double queue_p99_bytes = 0;      // over time, of the switch port with the largest queue
  Bytes queue_warm_max_bytes = 0;  // since the end of the warm-up
  Bytes switch_buffer_max_bytes = 0;
  Duration base_rtt;  // as controllers have it
  Duration pause_time;
  NicCounters nics;       // sums over all hosts, since time 0
  FabricCounters fabric;  // since time 0
  std::vector<LinkResult> links;
  std::vector<Series> queues;       // bytes, the busiest switch ports
  std::vector<Series> rates;        // bits per second of payload that arrives, the longest flows
  std::vector<LimitSeries> limits;  // of the same flows, at the begin of each interval
  uint64_t events = 0;              // since time 0
  uint64_t trace_hash = 0;
  // Only these differ between two runs of a spec. Processor time is that of the run's thread.
  double wall_seconds = 0;
  double set_up_cpu_seconds = 0;
  double loop_cpu_seconds = 0;  // from time 0 to the last event

  uint32_t host_of(uint32_t process) const { return process / processes; }
};

struct RunProgress {
  bool building = false;  // hosts are made, before time 0
  double done = 0;        // share of the hosts that are made, or of the bytes that have arrived
  Duration virtual_time;  // since time 0
  uint64_t events = 0;
};
// Called for each host that is made, and every 65,536 events; false ends the run.
using ProgressCallback = std::function<bool(const RunProgress&)>;

// Errors: kInvalidArgument for an impossible spec (an unknown algorithm, a host that the topology
// does not have, an impossible fabric), kSystem for files that cannot be written, kInternal for
// packets that are neither delivered, dropped nor in flight, kUnavailable if `progress` ended it
// before time 0.
Result<RunResult> run_experiment(const RunSpec& spec, const ProgressCallback& progress = {});

}  // namespace pacecar
