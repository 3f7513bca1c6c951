#include "bench/plan/search.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "bench/plan/split_search.h"

namespace pacecar::plan {
namespace {

// Orders of the kinds along the pipeline, with the stages that each has.
class PartLists {
 public:
  PartLists(const Problem& problem, uint32_t data) : problem_(problem), data_(data) {}

  std::vector<std::vector<Part>> all() {
    extend();
    return std::move(found_);
  }

 private:
  bool used(uint32_t kind) const {
    return std::ranges::find(parts_, kind, &Part::kind) != parts_.end();
  }

  void extend() {
    if (!parts_.empty()) found_.push_back(parts_);
    const Training& training = problem_.training;
    for (uint32_t kind = 0; kind < problem_.accelerators.size(); ++kind) {
      if (used(kind)) continue;
      for (const uint32_t tensor : training.tensor) {
        const bool other = !parts_.empty() && parts_[0].tensor != tensor;
        if (training.equal_tensor && other) continue;
        extend_with(kind, tensor);
      }
    }
  }

  void extend_with(uint32_t kind, uint32_t tensor) {
    const Accelerator& accelerator = problem_.accelerators[kind];
    if (accelerator.per_host % tensor != 0 || problem_.model.heads % tensor != 0) return;
    const uint32_t room = accelerator.count() / (data_ * tensor);
    const uint32_t longest = std::min(problem_.model.layers, problem_.training.most_stages);
    const uint32_t most = std::min(room, longest - stages_);
    for (uint32_t stages = 1; stages <= most; ++stages) {
      parts_.push_back({kind, stages, tensor});
      stages_ += stages;
      extend();
      stages_ -= stages;
      parts_.pop_back();
    }
  }

  const Problem& problem_;
  uint32_t data_;
  uint32_t stages_ = 0;
  std::vector<Part> parts_;
  std::vector<std::vector<Part>> found_;
};

// A bound that looks at no split: with `fill` until the first micro-batch arrives and after the
// last one has left, a stage has time for (T - fill) / (micro-batches x layer) layers; the sum is
// all.
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

// The best shapes so far.
class Ranking {
 public:
  Ranking(SearchResult& result, uint32_t best) : result_(result), best_(best) {}

  double limit_s() const {
    return result_.best.size() < best_ ? kNever : result_.best.back().step_s;
  }
  void add(Strategy strategy) {
    const auto place =
        std::ranges::upper_bound(result_.best, strategy.step_s, {}, &Strategy::step_s);
    result_.best.insert(place, std::move(strategy));
    if (result_.best.size() > best_) result_.best.pop_back();
  }

 private:
  SearchResult& result_;
  uint32_t best_;
};

bool fits(const SplitProblem& problem) {
  uint64_t most = 0;
  for (uint32_t stage = 0; stage < problem.stages(); ++stage) {
    if (problem.most(stage) == 0) return false;
    most += problem.most(stage);
  }
  return most >= problem.layers;
}

// Every way to give each stage a layer or more.
template <typename Visit>
void for_each_split(const SplitProblem& problem, uint32_t layers_left,
                    std::vector<uint32_t>& layers, const Visit& visit) {
  const auto stage = static_cast<uint32_t>(layers.size());
  if (stage == problem.stages()) {
    if (layers_left == 0) visit(layers);
    return;
  }
  for (uint32_t own = 1; own <= std::min(problem.most(stage), layers_left); ++own) {
    layers.push_back(own);
    for_each_split(problem, layers_left - own, layers, visit);
    layers.pop_back();
  }
}

}  // namespace

std::vector<Shape> shapes_of(const Problem& problem) {
  const Training& training = problem.training;
  uint32_t most = 0;
  for (const Accelerator& each : problem.accelerators) most = std::max(most, each.count());
  std::vector<Shape> found;
  for (uint32_t data = 1; data <= std::min(most, training.global_batch); ++data) {
    if (training.global_batch % data != 0) continue;
    const auto lists = PartLists(problem, data).all();
    for (const uint32_t micro_batch : training.micro_batches) {
      if (training.global_batch % (data * micro_batch) != 0) continue;
      for (const uint32_t experts : training.experts) {
        if (data % experts != 0 || problem.model.experts % experts != 0) continue;
        for (const Recompute recompute : training.recompute) {
          for (const auto& parts : lists)
            found.push_back({parts, data, micro_batch, experts, recompute});
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
      times.push_back(costs.times(stage, static_cast<uint32_t>(times.size())));
    found.times.emplace_back(times.begin(), times.begin() + most + 1);
  }
  return found;
}

SearchResult search(const Problem& problem, CommTimes& comm, const SearchOptions& options) {
  SearchResult result;
  const auto shapes = shapes_of(problem);
  result.shapes = shapes.size();
  std::vector<std::pair<double, const Shape*>> order;
  for (const Shape& shape : shapes) {
    order.emplace_back(quick_bound_s(problem, StageCosts(problem, shape, comm)), &shape);
  }
  std::ranges::stable_sort(order, {}, &std::pair<double, const Shape*>::first);

  Ranking ranking(result, options.best);
  result.bound_s = kNever;
  for (const auto& [quick_s, shape] : order) {
    if (quick_s >= ranking.limit_s() * (1 - options.tolerance)) {
      result.bound_s = std::min(result.bound_s, quick_s);
      break;
    }
    const StageCosts costs(problem, *shape, comm);
    const SplitProblem splits = split_problem(problem, costs);
    if (!fits(splits)) {
      result.memory_short = true;
      continue;
    }
    const SplitBounds bounds(splits);
    if (bounds.root_s() >= ranking.limit_s() * (1 - options.tolerance)) {
      result.bound_s = std::min(result.bound_s, bounds.root_s());
      continue;
    }
    ++result.shapes_searched;
    auto found = search_splits(splits, bounds, ranking.limit_s(), options.tolerance, options.nodes);
    result.splits += found.simulated;
    result.bound_s = std::min(result.bound_s, found.bound_s);
    if (!found.layers.empty()) ranking.add({*shape, std::move(found.layers), found.step_s});
  }
  if (!result.best.empty()) result.bound_s = std::min(result.bound_s, result.best[0].step_s);
  return result;
}

SearchResult search_all(const Problem& problem, CommTimes& comm, uint32_t best) {
  SearchResult result;
  Ranking ranking(result, best);
  for (const Shape& shape : shapes_of(problem)) {
    ++result.shapes;
    const StageCosts costs(problem, shape, comm);
    const SplitProblem splits = split_problem(problem, costs);
    Strategy strategy{shape, {}, kNever};
    std::vector<uint32_t> layers;
    for_each_split(splits, splits.layers, layers, [&](const std::vector<uint32_t>& split) {
      ++result.splits;
      const double time_s = step_s(splits, split);
      if (time_s < strategy.step_s) strategy = {shape, split, time_s};
    });
    if (strategy.layers.empty()) {
      result.memory_short = true;
    } else {
      ranking.add(std::move(strategy));
    }
  }
  if (!result.best.empty()) result.bound_s = result.best[0].step_s;
  return result;
}

}  // namespace pacecar::plan
