#include "bench/workload/workload_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include "bench/workload/cm_file.h"
#include "bench/workload/flow_sizes.h"
#include "bench/workload/generators.h"
#include "bench/workload/workload.h"
#include "transport/base/check.h"
#include "transport/base/prng.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

void shift_triggers(WorkloadFlow& flow, uint32_t by) {
  if (flow.trigger != kNoTrigger) flow.trigger += by;
  for (uint32_t& trigger : flow.on_sent) trigger += by;
  for (uint32_t& trigger : flow.on_received) trigger += by;
}

// A copy of `hosts` for each of `processes`: its flows go between the processes of that number in
// each host. All copies start together, and each waits for its own flows only. `split` divides the
// bytes of each flow among the copies. Ids go on from copy to copy.
Workload on_processes(const Workload& hosts, uint32_t per_host, Hosts processes, bool split) {
  Workload all{.name = hosts.name, .hosts = hosts.hosts * per_host, .jobs = hosts.jobs};
  uint64_t ids = 0;  // of one copy
  for (const WorkloadFlow& flow : hosts.flows) ids = std::max(ids, flow.id + 1);
  for (size_t copy = 0; copy < processes.size(); ++copy) {
    const auto first_trigger = static_cast<uint32_t>(all.triggers.size());
    for (WorkloadFlow flow : hosts.flows) {
      flow.source = flow.source * per_host + processes[copy];
      flow.destination = flow.destination * per_host + processes[copy];
      flow.id += copy * ids;
      if (split) flow.bytes = std::max<Bytes>(flow.bytes / processes.size(), 1);
      shift_triggers(flow, first_trigger);
      all.flows.push_back(std::move(flow));
    }
    all.triggers.insert(all.triggers.end(), hosts.triggers.begin(), hosts.triggers.end());
  }
  return all;
}

// A run of more flows takes too much memory and time.
constexpr uint64_t kMaxFlows = 10'000'000;

template <typename... Args>
tl::unexpected<Error> unfit(const WorkloadSpec& spec, fmt::format_string<Args...> text,
                            Args&&... args) {
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("workload {}: {}", spec.kind, fmt::format(text, std::forward<Args>(args)...)));
}

Result<Workload> make_file(const WorkloadSpec& spec, Hosts hosts, uint64_t) {
  ASSIGN_OR_RETURN(auto workload, read_cm_file(spec.file));
  if (workload.hosts > hosts.size()) {
    return unfit(spec, "{} has flows between {} hosts, but {} take part; let as many take part",
                 spec.file, workload.hosts, hosts.size());
  }
  for (WorkloadFlow& flow : workload.flows) {
    flow.source = hosts[flow.source];
    flow.destination = hosts[flow.destination];
  }
  return workload;
}

Result<Workload> make_pairs(const WorkloadSpec& spec, Hosts hosts, uint64_t) {
  if (hosts.size() % 2 != 0) {
    return unfit(spec, "hosts has {} entries; give an even number: source, destination, ...",
                 hosts.size());
  }
  FlowGraph graph;
  for (size_t i = 0; i < hosts.size(); i += 2) graph.add(hosts[i], hosts[i + 1], spec.bytes);
  return graph.take();
}

Result<Workload> make_incast(const WorkloadSpec& spec, Hosts hosts, uint64_t) {
  const size_t left = hosts.size() - std::min<size_t>(hosts.size(), spec.receivers);
  const size_t most = left / spec.receivers;
  if (spec.senders > most || most == 0) {
    return unfit(spec,
                 "{} hosts are enough for {} senders per receiver; lower senders ({}) or "
                 "receivers ({}), or let more hosts take part",
                 hosts.size(), most, spec.senders, spec.receivers);
  }
  const auto senders = spec.senders == 0 ? static_cast<uint32_t>(most) : spec.senders;
  FlowGraph graph;
  for (uint32_t i = 0; i < spec.receivers; ++i) {
    for (uint32_t j = 0; j < senders; ++j) {
      graph.add(hosts[spec.receivers + i * senders + j], hosts[i], spec.bytes, spec.stagger * j);
    }
  }
  return graph.take();
}

Result<Workload> make_permutation(const WorkloadSpec& spec, Hosts hosts, uint64_t seed) {
  return permutation(hosts, spec.hosts_per_leaf, spec.bytes, seed);
}

Result<Workload> make_random_flows(const WorkloadSpec& spec, Hosts hosts, uint64_t seed) {
  if (spec.rate == Rate()) return unfit(spec, "rate is 0; give that of a host's link");
  const auto sizes = FlowSizes::make(spec.sizes);
  if (!sizes) return unfit(spec, "{}", sizes.error().message);
  // Flows per nanosecond of all hosts together.
  const auto n = static_cast<double>(hosts.size());
  const double arrivals =
      n * spec.load * static_cast<double>(spec.rate.bps()) / 8e9 / sizes->mean();
  const auto end = static_cast<double>(spec.length.ns());
  if (arrivals * end > static_cast<double>(kMaxFlows)) {
    return unfit(spec,
                 "about {:.3g} flows would start; shorten the length or lower the load to stay "
                 "below {}",
                 arrivals * end, kMaxFlows);
  }
  FlowGraph graph;
  Prng prng(seed);
  const auto fraction = [&prng] { return static_cast<double>(prng.next_u64() >> 11) * 0x1p-53; };
  for (double now = 0;;) {
    now -= std::log1p(-fraction()) / arrivals;
    if (now >= end) break;
    const uint64_t from = prng.below(hosts.size());
    const uint64_t to = (from + 1 + prng.below(hosts.size() - 1)) % hosts.size();
    graph.add(hosts[from], hosts[to], sizes->at(fraction()),
              Duration::from_ns(static_cast<int64_t>(now)));
  }
  return graph.take();
}

// Refuses too many flows, and messages too small for `parts` parts.
Result<void> check_parts(const WorkloadSpec& spec, uint64_t flows, uint64_t parts) {
  if (spec.bytes < parts) {
    return unfit(spec, "{} bytes cannot be cut into {} parts; raise bytes", spec.bytes, parts);
  }
  if (flows > kMaxFlows) {
    return unfit(spec, "it would have {} flows; stay below {} with fewer hosts or pieces", flows,
                 kMaxFlows);
  }
  return {};
}

// A collective of n hosts that cuts the buffer into n shares.
template <uint32_t kRounds>
Result<Workload> make_ring(const WorkloadSpec& spec, Hosts hosts, uint64_t) {
  const uint64_t n = hosts.size();
  return check_parts(spec, 2 * n * (n - 1), n).map([&] {
    return ring_collective(hosts, spec.bytes, kRounds);
  });
}

template <Workload (*kMake)(Hosts, Bytes, uint32_t)>
Result<Workload> make_pieces(const WorkloadSpec& spec, Hosts hosts, uint64_t) {
  return check_parts(spec, 2 * hosts.size() * spec.pieces, spec.pieces).map([&] {
    return kMake(hosts, spec.bytes, spec.pieces);
  });
}

Result<Workload> make_all_to_all(const WorkloadSpec& spec, Hosts hosts, uint64_t) {
  return check_parts(spec, hosts.size() * (hosts.size() - 1), 1).map([&] {
    return all_to_all(hosts, spec.parallel, spec.bytes);
  });
}

Result<Workload> make_hierarchical(const WorkloadSpec& spec, Hosts hosts, uint64_t) {
  const uint64_t n = hosts.size();
  const uint32_t per_server = spec.hosts_per_server;
  if (per_server < 2 || n % per_server != 0 || n == per_server) {
    return unfit(spec,
                 "{} hosts do not make up several servers of {}; give a hosts_per_server of "
                 "at least 2 that divides the number of hosts",
                 n, per_server);
  }
  return check_parts(spec, 2 * n * (per_server - 1 + n / per_server - 1), n).map([&] {
    return hierarchical_all_reduce(hosts, per_server, spec.bytes);
  });
}

Result<Workload> make_pipeline(const WorkloadSpec& spec, Hosts hosts, uint64_t) {
  return check_parts(spec, 2 * hosts.size() * spec.microbatches, 1).map([&] {
    return pipeline_parallel(hosts, spec.bytes, spec.microbatches, spec.compute);
  });
}

constexpr WorkloadKind kKinds[] = {
    {"incast", "bytes senders receivers stagger ", "senders send to each receiver at once",
     make_incast},
    {"permutation", "bytes hosts_per_leaf ", "each host sends to one and receives from one",
     make_permutation},
    {"pairs", "bytes ", "the 1st host sends to the 2nd, the 3rd to the 4th, ...", make_pairs},
    {"all_to_all", "bytes parallel ", "each host sends to all others, some or all at a time",
     make_all_to_all},
    {"random_flows", "sizes load rate length ",
     "Poisson arrivals, sizes from a distribution (WebSearch, FB_Hadoop)", make_random_flows},
    {"ring_all_reduce", "bytes ", "reduce-scatter and all-gather along a ring", make_ring<2>},
    {"hierarchical_all_reduce", "bytes hosts_per_server ",
     "all-reduce within servers, between them, within", make_hierarchical},
    {"tree_all_reduce", "bytes pieces ", "all-reduce up and down a binary tree",
     make_pieces<tree_all_reduce>},
    {"reduce_scatter", "bytes ", "reduce-scatter along a ring", make_ring<1>},
    {"all_gather", "bytes ", "all-gather along a ring", make_ring<1>},
    {"ring_broadcast", "bytes pieces ", "from the first host along the others",
     make_pieces<ring_broadcast>},
    {"tree_broadcast", "bytes pieces ", "from the first host down a binary tree",
     make_pieces<tree_broadcast>},
    {"pipeline", "bytes microbatches compute ", "pipeline parallelism, one stage per host",
     make_pipeline},
    {"mixture", "job ", "several jobs side by side", nullptr},
};

// `chosen` numbers below `number`; all of them if none is chosen. None may be chosen twice.
Result<std::vector<uint32_t>> chosen_of(const WorkloadSpec& spec, std::vector<uint32_t> chosen,
                                        uint32_t number, std::string_view one) {
  if (chosen.empty()) {
    chosen.resize(number);
    std::iota(chosen.begin(), chosen.end(), 0U);
  }
  std::vector<bool> taken(number, false);
  for (const uint32_t each : chosen) {
    PACECAR_CHECK(each < number);
    if (taken[each]) return unfit(spec, "it names {} {} twice; name it once", one, each);
    taken[each] = true;
  }
  return chosen;
}

// The hosts that take part, in their order.
Result<std::vector<uint32_t>> take_part(const WorkloadSpec& spec, uint32_t hosts, uint64_t seed) {
  ASSIGN_OR_RETURN(auto members, chosen_of(spec, spec.hosts, hosts, "host"));
  if (members.size() < 2) return unfit(spec, "{} hosts take part; let at least 2", members.size());
  if (spec.shuffle) {
    Prng prng(seed);
    for (size_t i = members.size() - 1; i > 0; --i) {
      std::swap(members[i], members[prng.below(i + 1)]);
    }
  }
  return members;
}

Result<Workload> make_job(const WorkloadSpec& spec, uint32_t hosts, uint64_t seed,
                          uint32_t processes) {
  const auto kind = std::ranges::find(kKinds, spec.kind, &WorkloadKind::name);
  PACECAR_CHECK(kind != std::end(kKinds) || spec.kind == "file");
  if (spec.bytes == 0) return unfit(spec, "bytes is 0; give at least 1");
  Prng seeds(seed);
  ASSIGN_OR_RETURN(const auto members, take_part(spec, hosts, seeds.next_u64()));
  const auto make = kind == std::end(kKinds) ? make_file : kind->make;
  ASSIGN_OR_RETURN(auto workload, make(spec, members, seeds.next_u64()));

  workload.name = spec.name.empty() ? spec.kind : spec.name;
  workload.hosts = hosts;
  workload.jobs = {{.name = workload.name,
                    .congestion_control = spec.congestion_control,
                    .weight = spec.weight}};
  for (WorkloadFlow& flow : workload.flows) {
    if (flow.trigger == kNoTrigger) flow.start = flow.start + spec.start;
  }
  ASSIGN_OR_RETURN(const auto copies, chosen_of(spec, spec.processes, processes, "process"));
  return on_processes(workload, processes, copies, spec.split);
}

// Adds the jobs of `more`, whose flows wait for none of the others.
void append(Workload& workload, Workload more) {
  const auto first_trigger = static_cast<uint32_t>(workload.triggers.size());
  const auto first_job = static_cast<uint32_t>(workload.jobs.size());
  for (WorkloadFlow& flow : more.flows) {
    shift_triggers(flow, first_trigger);
    flow.job += first_job;
    flow.id = workload.flows.size();
    workload.flows.push_back(std::move(flow));
  }
  workload.triggers.insert(workload.triggers.end(), more.triggers.begin(), more.triggers.end());
  workload.jobs.insert(workload.jobs.end(), more.jobs.begin(), more.jobs.end());
}

}  // namespace

std::span<const WorkloadKind> workload_kinds() { return kKinds; }

Result<Workload> make_workload(const WorkloadSpec& spec, uint32_t hosts, uint64_t seed,
                               uint32_t processes) {
  if (spec.kind != "mixture") return make_job(spec, hosts, seed, processes);
  if (spec.jobs.empty()) return unfit(spec, "it has no jobs; give at least one");
  Workload all{
      .name = spec.name.empty() ? spec.kind : spec.name, .hosts = hosts * processes, .jobs = {}};
  Prng seeds(seed);
  for (const WorkloadSpec& job : spec.jobs) {
    ASSIGN_OR_RETURN(auto workload, make_workload(job, hosts, seeds.next_u64(), processes));
    append(all, std::move(workload));
  }
  return all;
}

}  // namespace pacecar
