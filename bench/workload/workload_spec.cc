#include "bench/workload/workload_spec.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "bench/workload/generators.h"
#include "bench/workload/operations.h"
#include "transport/base/check.h"
#include "transport/base/prng.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

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

constexpr WorkloadKind kKinds[] = {
    {"incast", "bytes senders receivers stagger ", "senders send to each receiver at once", incast},
    {"permutation", "bytes hosts_per_leaf ", "each host sends to one and receives from one",
     permutation},
    {"pairs", "bytes ", "the 1st host sends to the 2nd, the 3rd to the 4th, ...", pairs},
    {"all_to_all", "bytes parallel ", "each host sends to all others, some or all at a time",
     all_to_all},
    {"random_flows", "sizes load rate length ",
     "Poisson arrivals, sizes from a distribution (WebSearch, FB_Hadoop)", random_flows},
    {"ring_all_reduce", "bytes ", "reduce-scatter and all-gather along a ring", ring_all_reduce},
    {"hierarchical_all_reduce", "bytes hosts_per_server ",
     "all-reduce within servers, between them, within", hierarchical_all_reduce},
    {"tree_all_reduce", "bytes pieces ", "all-reduce up and down a binary tree", tree_all_reduce},
    {"reduce_scatter", "bytes ", "reduce-scatter along a ring", ring_half},
    {"all_gather", "bytes ", "all-gather along a ring", ring_half},
    {"ring_broadcast", "bytes pieces ", "from the first host along the others", ring_broadcast},
    {"tree_broadcast", "bytes pieces ", "from the first host down a binary tree", tree_broadcast},
    {"pipeline", "bytes microbatches compute ", "pipeline parallelism, one stage per host",
     pipeline_parallel},
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
  const auto make = kind == std::end(kKinds) ? file_flows : kind->make;
  ASSIGN_OR_RETURN(auto workload, make(spec, members, seeds.next_u64()));
  if (spec.slice > 0) {
    ASSIGN_OR_RETURN(workload, in_slices(workload, spec.slice));
  }
  if (spec.operations > 1) workload = repeated(workload, spec.operations, spec.pause);

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
    const auto taken = [&](const std::string& name) {
      return std::ranges::count(all.jobs, name, &WorkloadJob::name) > 0;
    };
    for (WorkloadJob& made : workload.jobs) {
      if (!job.name.empty() && taken(made.name)) {
        return unfit(spec, "two jobs are called '{}'; give each its own name", made.name);
      }
      const std::string kind = made.name;
      for (int i = 2; taken(made.name); ++i) made.name = fmt::format("{}-{}", kind, i);
    }
    append(all, std::move(workload));
  }
  return all;
}

}  // namespace pacecar
