// The costs of a shape's stages by their number of layers: memory, times of passes and of
// collectives, traffic. Times in seconds, sizes in bytes. Pure but for the cache of CommTimes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "bench/plan/model.h"
#include "bench/plan/split.h"
#include "net_plugin/predict/cluster.h"
#include "net_plugin/predict/collective.h"

namespace pacecar::plan {

// The parameters of one accelerator: tensor parallelism divides all parameters; expert parallelism
// also divides the experts' parameters.
ParameterCount held_parameters(const Problem& problem, const Shape& shape, uint32_t stage,
                               uint32_t layers);

// Memory of an accelerator. Only these items are counted; Training::usable_memory leaves room for
// the rest of the framework.
struct StageMemory {
  double weights = 0;  // with their gradients
  double optimizer = 0;
  double activations = 0;  // of all micro-batches in flight, and the working memory of one pass
  double usable = 0;       // by all items together
  double all() const { return weights + optimizer + activations; }
};
// Linear in `layers`. Assumes sequence parallelism where there is tensor parallelism.
StageMemory stage_memory(const Problem& problem, const Shape& shape, uint32_t stage,
                         uint32_t layers);

// Ranks on hosts of one kind, equally many on each. For kSendRecv: one rank on a host of `kind`,
// and one on a host of `other`.
struct RankGroup {
  uint32_t kind = 0;
  uint32_t other = 0;
  uint32_t hosts = 1;
  uint32_t per_host = 1;
  uint32_t sharing = 1;  // groups that share the NICs of a host
  auto operator<=>(const RankGroup&) const = default;
};

// The times of a plan's collectives: predictions, each made once. A group of ranks is predicted on
// a small cluster of its own, with its share of the hosts' NICs. One thread at a time.
class CommTimes {
 public:
  // Both must outlive it.
  CommTimes(const predict::Cluster& cluster, const predict::LibraryCosts& library)
      : cluster_(cluster), library_(library) {}

  // In seconds, by the fastest algorithm and protocol; bytes as nccl-tests count them. 0 for a
  // group of one rank.
  double time_s(predict::Operation operation, const RankGroup& group, double bytes);

 private:
  static constexpr int kSmallest = 10;  // exponents of 2
  static constexpr int kLargest = 36;
  using Column = std::array<double, kLargest - kSmallest + 1>;  // below 0: not yet predicted
  struct Key {
    predict::Operation operation;
    RankGroup group;
    auto operator<=>(const Key&) const = default;
  };

  double at(Column& column, const Key& key, int exponent);

  const predict::Cluster& cluster_;
  const predict::LibraryCosts& library_;
  std::map<Key, Column> columns_;
};

// Times of one accelerator, per micro-batch.
struct PassTimes {
  double compute_s = 0;
  double tensor_s = 0;   // all-reduces of tensor parallelism: nothing hides them
  double experts_s = 0;  // all-to-alls of experts: nothing hides them
  double all() const { return compute_s + tensor_s + experts_s; }
};

// The work after a stage's last backward pass that compute does not hide.
struct TailTimes {
  double gradients_s = 0;
  double optimizer_s = 0;
  double weights_s = 0;
  double all() const { return gradients_s + optimizer_s + weights_s; }
};

// Bytes that one accelerator sends per step.
struct Traffic {
  double tensor = 0;
  double pipeline = 0;
  double data = 0;
  double experts = 0;
};

struct StageCost {
  PassTimes forward;
  PassTimes backward;
  double send_s = 0;  // of activations to the next stage, and of their gradients back; else 0
  TailTimes tail = {};
  StageMemory memory;
  Traffic traffic;

  StageTime time() const { return {forward.all(), backward.all(), send_s, tail.all()}; }
};

// All arguments of the constructor must outlive it.
class StageCosts {
 public:
  StageCosts(const Problem& problem, const Shape& shape, CommTimes& comm);

  uint32_t stages() const { return static_cast<uint32_t>(places_.size()); }
  uint32_t micro_batches() const { return micro_batches_; }
  // The index of the stage's part in the shape.
  uint32_t part(uint32_t stage) const { return places_[stage].part; }
  // A micro-batch through one layer and back.
  double layer_s(uint32_t stage) const {
    return parts_[part(stage)].forward.all() + parts_[part(stage)].backward.all();
  }
  double send_s(uint32_t stage) const { return places_[stage].send_s; }
  StageCost of(uint32_t stage, uint32_t layers) const;
  // How many of the model's layers fit the memory; may be 0.
  uint32_t most_layers(uint32_t stage) const;

 private:
  struct Place {
    uint32_t part = 0;
    double send_s = 0;
  };
  struct PartTimes {
    PassTimes forward;  // of a layer
    PassTimes backward;
    double head_s = 0;  // of the logits, forward
    RankGroup data;
    RankGroup expert_data;
  };

  PartTimes part_times(const Part& part) const;
  double send_between(const Part& from, const Part& to) const;
  Traffic traffic(uint32_t stage, uint32_t layers, const ParameterCount& held) const;

  const Problem& problem_;
  const Shape& shape_;
  CommTimes& comm_;
  uint32_t micro_batches_;
  double tokens_;  // of a micro-batch
  std::vector<PartTimes> parts_;
  std::vector<Place> places_;  // by stage
};

}  // namespace pacecar::plan
