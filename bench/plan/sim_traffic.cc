#include "bench/plan/sim_traffic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "bench/plan/memory.h"
#include "bench/plan/stage_costs.h"
#include "transport/base/return_if_error.h"

namespace pacecar::plan {
namespace {

using predict::Operation;

Result<double> nic_rate(const Problem& problem) {
  const predict::Cluster& cluster = problem.cluster;
  const predict::NicKind& first = cluster.nic_kinds[cluster.groups[0].nics[0]];
  for (const predict::HostGroup& group : cluster.groups) {
    const bool equal = std::ranges::all_of(
        group.nics, [&](uint32_t nic) { return cluster.nic_kinds[nic].rate == first.rate; });
    if (!equal || group.nics.size() != group.gpus || group.gpus != cluster.groups[0].gpus) {
      return fail(ErrorCode::kInvalidArgument,
                  "only plans of hosts that are alike, with a NIC of the same rate for each "
                  "accelerator, can be simulated: give all kinds the same host.nics and gpus");
    }
  }
  return first.rate;
}

class Experiment {
 public:
  Experiment(const Problem& problem, const Strategy& strategy, CommTimes& comm, double scale)
      : problem_(problem), strategy_(strategy), comm_(comm), scale_(scale) {
    for (uint32_t stage = 0; stage < strategy.shape.stages(); ++stage) {
      first_.push_back(ranks_);
      ranks_ += group(stage);
    }
  }

  std::string text(double rate) {
    const predict::Fabric& fabric = problem_.cluster.fabric;
    const uint32_t per_host = problem_.accelerators[0].per_host;
    const uint32_t leaf = fabric.hosts_per_leaf * per_host;
    const uint32_t hosts = leaf == 0 ? ranks_ : (ranks_ + leaf - 1) / leaf * leaf;
    std::string found = fmt::format(
        "[topology]\nkind = \"{}\"\nhosts = {}\nrate = \"{:.0f}M\"\ndelay = \"{:.0f}ns\"\n",
        leaf == 0 ? "star" : "leaf-spine", hosts, rate * 8e-6, fabric.cable_latency_s * 1e9);
    if (leaf > 0) found += fmt::format("hosts_per_leaf = {}\n", leaf);
    add_sends();
    add_reductions();
    return found + "[workload]\n" + jobs_;
  }

 private:
  uint32_t group(uint32_t stage) const {
    return strategy_.shape.data * strategy_.shape.part_of(stage).tensor;
  }

  void add_job(std::string_view name, std::string_view kind, double bytes, double start_s,
               const std::vector<uint32_t>& hosts) {
    jobs_ += fmt::format(
        "[[workload.job]]\nname = \"{}\"\nkind = \"{}\"\nbytes = {:.0f}\nstart = \"{:.0f}us\"\n"
        "hosts = [{}]\n",
        name, kind, bytes, start_s * 1e6, fmt::join(hosts, ", "));
  }

  void add_sends() {
    for (uint32_t stage = 0; stage + 1 < first_.size(); ++stage) {
      const Part& from = strategy_.shape.part_of(stage);
      const Part& to = strategy_.shape.part_of(stage + 1);
      const uint32_t pairs = std::min(from.tensor, to.tensor);
      const double bytes = scale_ * strategy_.shape.micro_batch * problem_.model.sequence *
                           problem_.model.hidden * problem_.training.precision.element / pairs;
      std::vector<uint32_t> forward;
      std::vector<uint32_t> back;
      for (uint32_t data = 0; data < strategy_.shape.data; ++data) {
        for (uint32_t i = 0; i < pairs; ++i) {
          const uint32_t one = first_[stage] + data * from.tensor + i;
          const uint32_t other = first_[stage + 1] + data * to.tensor + i;
          forward.insert(forward.end(), {one, other});
          back.insert(back.end(), {other, one});
        }
      }
      const double time_s =
          comm_.time_s(Operation::kSendRecv, send_group(problem_, from, to), bytes);
      jobs_ += fmt::format("# predicted: {:.1f} us\n", time_s * 1e6);
      add_job(fmt::format("send{}", stage), "pairs", bytes, 0, forward);
      add_job(fmt::format("back{}", stage), "pairs", bytes, 0, back);
      sends_s_ = std::max(sends_s_, time_s);
    }
  }

  // A ring per NIC of a host; the ranks of a group on one host sum over NVLink before.
  void add_reductions() {
    constexpr double kPause = 10;  // times the sends: they are over
    for (uint32_t stage = 0; stage < first_.size(); ++stage) {
      const Part& part = strategy_.shape.part_of(stage);
      const uint32_t on_host =
          std::min(strategy_.shape.data, problem_.accelerators[part.kind].per_host / part.tensor);
      const uint32_t hosts = strategy_.shape.data / on_host;
      if (hosts < 2) continue;
      const HeldParameters held =
          held_parameters(problem_, strategy_.shape, stage, strategy_.layers[stage]);
      const double bytes = scale_ * held.shared * problem_.training.precision.gradient / on_host;
      const RankGroup ring{
          .kind = part.kind, .other = part.kind, .hosts = hosts, .sharing = part.tensor * on_host};
      jobs_ += fmt::format("# predicted: {:.1f} us\n",
                           comm_.time_s(Operation::kReduceScatter, ring, bytes) * 1e6);
      for (uint32_t nic = 0; nic < on_host * part.tensor; ++nic) {
        std::vector<uint32_t> members;
        for (uint32_t host = 0; host < hosts; ++host)
          members.push_back(first_[stage] + host * on_host * part.tensor + nic);
        add_job(fmt::format("reduce{}.{}", stage, nic), "reduce_scatter", bytes, kPause * sends_s_,
                members);
      }
    }
  }

  const Problem& problem_;
  const Strategy& strategy_;
  CommTimes& comm_;
  double scale_;
  std::vector<uint32_t> first_;  // rank of each stage
  uint32_t ranks_ = 0;
  double sends_s_ = 0;
  std::string jobs_;
};

}  // namespace

Result<std::string> sim_experiment(const Problem& problem, const Strategy& strategy,
                                   CommTimes& comm, double scale) {
  ASSIGN_OR_RETURN(const auto rate, nic_rate(problem));
  return Experiment(problem, strategy, comm, scale).text(rate);
}

}  // namespace pacecar::plan
