#include "bench/plan/search.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace pacecar::plan {
namespace {

// Adds to `found` all continuations of `parts`, which have `stages` stages: orders of the kinds
// along the pipeline, with the number of stages of each kind.
void add_continuations(const Problem& problem, uint32_t data, uint32_t stages,
                       std::vector<Part>& parts, std::vector<std::vector<Part>>& found) {
  const Training& training = problem.training;
  for (uint32_t kind = 0; kind < problem.accelerators.size(); ++kind) {
    if (std::ranges::find(parts, kind, &Part::kind) != parts.end()) continue;
    const Accelerator& accelerator = problem.accelerators[kind];
    for (const uint32_t tensor : training.tensor) {
      const bool unequal = !parts.empty() && parts[0].tensor != tensor;
      if (training.equal_tensor && unequal) continue;
      if (accelerator.per_host % tensor != 0 || problem.model.heads % tensor != 0) continue;
      const uint32_t room = accelerator.count() / (data * tensor);
      const uint32_t longest = std::min(problem.model.layers, training.most_stages);
      for (uint32_t more = 1; more <= std::min(room, longest - stages); ++more) {
        parts.push_back({kind, more, tensor});
        found.push_back(parts);
        add_continuations(problem, data, stages + more, parts, found);
        parts.pop_back();
      }
    }
  }
}

// A bound for all splits. In a step of T a stage has time for (T - fill) / (micro-batches x layer)
// layers, where `fill` is the time before the first micro-batch arrives and after the last one has
// left; the sum over the stages is the number of layers.
double quick_bound_s(const Problem& problem, const StageCosts& costs) {
  const double micro_batches = costs.micro_batches();
  double fill = 0;
  double speed = 0;
  double filled = 0;
  for (uint32_t stage = 0; stage < costs.stages(); ++stage) {
    const double layer = costs.layer_s(stage);
    speed += 1 / layer;
    filled += fill / layer;
    fill += layer + 2 * costs.send_s(stage);
  }
  return (micro_batches * problem.model.layers + filled) / speed;
}

}  // namespace

std::vector<Shape> shapes_of(const Problem& problem) {
  const Training& training = problem.training;
  uint32_t most = 0;
  for (const Accelerator& each : problem.accelerators) most = std::max(most, each.count());
  std::vector<Shape> found;
  for (uint32_t data = 1; data <= std::min(most, training.global_batch); ++data) {
    if (training.global_batch % data != 0) continue;
    std::vector<Part> parts;
    std::vector<std::vector<Part>> lists;
    add_continuations(problem, data, 0, parts, lists);
    for (const uint32_t micro_batch : training.micro_batches) {
      if (training.global_batch % (data * micro_batch) != 0) continue;
      for (const uint32_t experts : training.experts) {
        if (data % experts != 0 || problem.model.experts % experts != 0) continue;
        for (const Recompute recompute : training.recompute) {
          for (const auto& list : lists)
            found.push_back({list, data, micro_batch, experts, recompute});
        }
      }
    }
  }
  return found;
}

SplitProblem split_problem(const Problem& problem, const StageCosts& costs) {
  SplitProblem found{
      .times = {}, .layers = problem.model.layers, .micro_batches = costs.micro_batches()};
  const uint32_t stages = costs.stages();
  // Stages of a part are alike, but for the first and the last of the pipeline.
  std::map<std::tuple<uint32_t, bool, bool, double>, std::vector<StageTime>> known;
  for (uint32_t stage = 0; stage < stages; ++stage) {
    const uint32_t most = std::min(costs.most_layers(stage), problem.model.layers - stages + 1);
    auto& times = known[{costs.part(stage), stage == 0, stage + 1 == stages, costs.send_s(stage)}];
    if (times.empty()) times.resize(1);
    while (times.size() <= most)
      times.push_back(costs.of(stage, static_cast<uint32_t>(times.size())).time());
    found.times.emplace_back(times.begin(), times.begin() + most + 1);
  }
  return found;
}

SearchResult search(const Problem& problem, CommTimes& comm, const SearchOptions& options,
                    const Looked& looked) {
  SearchResult result;
  const auto shapes = shapes_of(problem);
  result.shapes = shapes.size();
  std::vector<std::pair<double, const Shape*>> order;
  for (const Shape& shape : shapes) {
    order.emplace_back(quick_bound_s(problem, StageCosts(problem, shape, comm)), &shape);
  }
  std::ranges::stable_sort(order, {}, &std::pair<double, const Shape*>::first);

  const auto limit_s = [&] {
    return result.best.size() < options.best ? kNever : result.best.back().step_s;
  };
  result.bound_s = kNever;
  size_t done = 0;
  for (const auto& [quick_s, shape] : order) {
    looked(done++, order.size());
    const double useful_s = limit_s() * (1 - options.tolerance);
    if (quick_s >= useful_s) {
      result.bound_s = std::min(result.bound_s, quick_s);
      break;
    }
    const SplitProblem splits = split_problem(problem, StageCosts(problem, *shape, comm));
    const SplitBounds bounds(splits);
    if (bounds.root_s() == kNever) {
      result.memory_short = true;
      continue;
    }
    if (bounds.root_s() >= useful_s) {
      result.bound_s = std::min(result.bound_s, bounds.root_s());
      continue;
    }
    ++result.shapes_searched;
    auto found = search_splits(splits, bounds, limit_s(), options.tolerance, options.nodes);
    result.splits += found.simulated;
    result.bound_s = std::min(result.bound_s, found.bound_s);
    if (found.layers.empty()) continue;
    const auto place = std::ranges::upper_bound(result.best, found.step_s, {}, &Strategy::step_s);
    result.best.insert(place, {*shape, std::move(found.layers), found.step_s});
    if (result.best.size() > options.best) result.best.pop_back();
  }
  if (!result.best.empty()) result.bound_s = std::min(result.bound_s, result.best[0].step_s);
  return result;
}

}  // namespace pacecar::plan
