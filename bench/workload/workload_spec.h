// A workload as an experiment's file describes it: its kind and that kind's numbers. Pure data, the
// table of kinds, and the function that makes the flows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/workload/workload.h"
#include "transport/base/result.h"
#include "transport/base/units.h"

namespace pacecar {

struct WorkloadSpec {
  std::string kind;                // of workload_kinds(), or "file": a .cm file (cm_file.h)
  std::string name;                // of the job, in reports; empty: the kind
  std::string congestion_control;  // of its flows; empty: as the experiment
  uint32_t weight = 1;             // of its flows
  std::vector<uint32_t> hosts;     // that take part, in this order; empty: all
  bool shuffle = false;            // puts the hosts into an order drawn from the seed
  // The processes of each host that take part, by their number in it; empty: all. The first of each
  // host have one copy of the flows, the second another, and so on.
  std::vector<uint32_t> processes;
  bool split = false;       // the copies divide the bytes of each flow among them
  Duration start;           // of the first flows
  uint32_t operations = 1;  // how often, one after the other
  Duration pause;           // between two operations
  Bytes slice = 0;          // most bytes of a message; 0: a flow is one
  Bytes bytes = 1'000'000;  // of a flow; of a collective: of the buffer of each host

  std::string file;      // path of a .cm file
  uint32_t senders = 0;  // per receiver; 0: as many as the other hosts allow
  uint32_t receivers = 1;
  Duration stagger;             // between the starts of an incast's senders
  uint32_t hosts_per_leaf = 1;  // nobody sends to a host of its own leaf
  uint32_t hosts_per_server = 8;
  uint32_t parallel = 0;             // flows of one host at a time; 0: all
  std::string sizes = "WebSearch";   // or "FB_Hadoop", or lines "bytes percent" (flow_sizes.h)
  double load = 0.5;                 // of each host's link, on the average
  Rate rate = Rate::from_gbps(100);  // of a host's link
  Duration length = Duration::from_ms(1);  // during which flows arrive
  uint32_t pieces = 1;                     // that a message is cut into, sent one after the other
  uint32_t microbatches = 8;
  Duration compute;  // of one stage for one microbatch, one way

  std::vector<WorkloadSpec> jobs;
};

struct WorkloadKind {
  std::string_view name;
  std::string_view keys;  // the fields that only some kinds have, each followed by a blank
  std::string_view summary;
  // Null for a mixture.
  Result<Workload> (*make)(const WorkloadSpec& spec, Hosts hosts, uint64_t seed);
};
std::span<const WorkloadKind> workload_kinds();

// The flows for a fabric of `hosts` hosts with `processes` processes each; the same arguments give
// the same flows. Expects numbers in the ranges that bench/sim/spec_file.cc reads.
// Errors: kInvalidArgument for values that do not fit each other or the fabric, kSystem for a file
// that cannot be read; one sentence that names the field, or the file and line, and the cure.
Result<Workload> make_workload(const WorkloadSpec& spec, uint32_t hosts, uint64_t seed,
                               uint32_t processes = 1);

}  // namespace pacecar
