#include "net_plugin/predict/plan.h"

#include <algorithm>
#include <cmath>

#include "transport/base/check.h"

namespace pacecar::predict {

bool has_two_trees(const PlanInput& input) {
  return input.collective.algorithm != Algorithm::kRing && input.overheads.near_trees &&
         input.hosts.size() > 2;
}

Channels channels_of(const PlanInput& input) {
  const auto nics = static_cast<uint32_t>(input.group().nics.size());
  // A pair sends over the NICs next to its GPU.
  const bool pairs = input.collective.algorithm == Algorithm::kPairwise;
  const uint32_t usual = pairs ? std::max(nics / input.group().gpus, 1U) : nics;
  Channels channels{.count = input.collective.channels == 0 ? usual : input.collective.channels};
  const auto rate = [&](uint32_t nic) { return input.network.kind(input.hosts.front(), nic).rate; };
  for (uint32_t nic = 1; nic < std::min(nics, channels.count); ++nic) {
    if (rate(nic) < rate(channels.nic)) channels.nic = nic;
  }
  const double of_nic = static_cast<double>((channels.count + nics - 1) / nics);
  channels.loads = {.nic = of_nic,
                    .leaf = input.network.cluster().fabric.rails ? of_nic : channels.count,
                    .nvlink = static_cast<double>(channels.count)};
  return channels;
}

double bytes_at_once(const PlanInput& input) {
  const Collective& what = input.collective;
  const double chunks = static_cast<double>(input.costs().chunk) * channels_of(input).count;
  if (goes_in_pieces(what)) return has_two_trees(input) ? 2 * chunks : chunks;
  if (what.algorithm == Algorithm::kRing) return chunks * input.all_hosts * input.group().gpus;
  return what.algorithm == Algorithm::kNvls ? chunks * input.all_hosts : 0;
}

double rounds_of(const PlanInput& input) {
  const double at_once = bytes_at_once(input);
  if (at_once == 0) return 1;
  return std::max(1.0, std::ceil(static_cast<double>(input.collective.bytes) / at_once));
}

void repeat(Plan& plan, uint32_t first, uint32_t flows, uint32_t planned, double steps) {
  if (planned >= steps) return;
  const uint32_t half = planned / 2;
  plan.early = {first + (half - 1) * flows, first + half * flows};
  plan.late = {first + (planned - 1) * flows, first + planned * flows};
  plan.repeats = (steps - planned) / (planned - half);
}

Plan plan_collective(const PlanInput& input, FlowSet& set) {
  const Operation operation = input.collective.operation;
  const Algorithm algorithm = input.collective.algorithm;
  PACECAR_CHECK(supported(operation, algorithm));
  const uint32_t first = set.size();
  Plan plan = goes_in_pieces(input.collective)        ? plan_pieces(input, set)
              : algorithm == Algorithm::kPat          ? plan_pat(input, set)
              : algorithm == Algorithm::kHierarchical ? plan_hierarchical(input, set)
              : operation == Operation::kAllToAll     ? plan_all_to_all(input, set)
                                                      : plan_ring(input, set);
  plan.flows = {first, set.size()};
  if (algorithm == Algorithm::kNvls || algorithm == Algorithm::kNvlsTree) {
    const HostGroup& group = input.group();
    plan.extra_s += 2 * (group.nvlink_latency_s + input.costs().local_step_s);
    plan.at_least(
        static_cast<double>(input.collective.bytes) * (1 + 1.0 / group.gpus) / group.nvlink_rate,
        Cause::kNvlink);
  }
  plan.extra_s += input.costs().launch_s;
  return plan;
}

}  // namespace pacecar::predict
