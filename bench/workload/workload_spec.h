// A workload as an experiment's file describes it: its kind, and what that kind needs to know.
// Pure data, and the function that makes the flows of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/workload/workload.h"
#include "transport/base/result.h"
#include "transport/base/units.h"

namespace pacecar {

// Kinds, and the fields that each has beside those of all kinds:
//
//   file                     file                    a .cm file (cm_file.h)
//   pairs                                            the 1st host sends to the 2nd, 3rd to 4th, ...
//   incast                   senders receivers       several hosts to each of the first ones
//                            stagger
//   permutation              hosts_per_leaf          each host sends to one, receives from one
//   all_to_all               parallel                each host sends to all others
//   random_flows             sizes load rate length  Poisson arrivals, sizes from a distribution
//   ring_all_reduce                                  reduce-scatter, then all-gather
//   hierarchical_all_reduce  hosts_per_server        within servers, between them, within them
//   tree_all_reduce          pieces                  up and down a binary tree
//   reduce_scatter                                   along a ring
//   all_gather                                       along a ring
//   ring_broadcast           pieces                  from the first host along the others
//   tree_broadcast           pieces                  from the first host down a binary tree
//   pipeline                 microbatches compute    1F1B, one stage per host
//   mixture                  jobs                    several jobs side by side; only jobs and name
struct WorkloadSpec {
  std::string kind;
  std::string name;                // of the job, in reports; empty: the kind
  std::string congestion_control;  // of its flows; empty: the experiment's
  uint32_t weight = 1;             // of its flows
  std::vector<uint32_t> hosts;     // that take part, in this order; empty: all
  // Of each host, by their place in it: each place has a copy of the flows; empty: all.
  std::vector<uint32_t> processes;
  bool split = false;       // the copies divide the bytes of each flow among them
  bool shuffle = false;     // puts them into an order drawn from the seed
  Duration start;           // of the first flows
  Bytes bytes = 1'000'000;  // of a flow; of a collective: of the buffer of each host

  std::string file;      // path of a .cm file
  uint32_t senders = 0;  // per receiver; 0: all that are left, shared out evenly
  uint32_t receivers = 1;
  Duration stagger;             // between the starts of an incast's senders
  uint32_t hosts_per_leaf = 1;  // nobody sends to a host of its own leaf
  uint32_t hosts_per_server = 8;
  uint32_t parallel = 0;             // flows of one host at a time; 0: all
  std::string sizes = "WebSearch";   // or "FB_Hadoop", or lines "bytes percent" (flow_sizes.h)
  double load = 0.5;                 // of each host's link, on the average
  Rate rate = Rate::from_gbps(100);  // of a host's link
  Duration length = Duration::from_ms(1);  // flows arrive for so long
  uint32_t pieces = 1;                     // that a message is cut into, one after the other
  uint32_t microbatches = 8;
  Duration compute;  // of one stage for one microbatch, one way

  std::vector<WorkloadSpec> jobs;
};

// The flows for a fabric of `hosts` hosts with `processes` processes each; the same arguments give
// the same flows. Errors: kInvalidArgument for an unknown kind or values that do not fit, kSystem
// for a file that cannot be read; one sentence that names the field, or the file and line, and the
// cure.
Result<Workload> make_workload(const WorkloadSpec& spec, uint32_t hosts, uint64_t seed,
                               uint32_t processes = 1);

}  // namespace pacecar
