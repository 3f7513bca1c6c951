// The costs of a shape's stages by their number of layers. Times in seconds. Pure but for the cache
// of CommTimes.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/plan/comm_times.h"
#include "bench/plan/schedule.h"
#include "bench/plan/strategy.h"

namespace pacecar::plan {

// Of one accelerator, per micro-batch.
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

// A rank of one stage and its peer in the next one. Each has its share of the NICs, as all ranks of
// their hosts send.
RankGroup send_group(const Problem& problem, const Part& from, const Part& to);

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
  PassTimes forward(uint32_t stage, uint32_t layers) const;
  PassTimes backward(uint32_t stage, uint32_t layers) const;
  // Of activations to the next stage, and of their gradients back; 0 for the last stage.
  double send_s(uint32_t stage) const { return places_[stage].send_s; }
  TailTimes tail(uint32_t stage, uint32_t layers) const;
  StageTime times(uint32_t stage, uint32_t layers) const;
  // How many layers, at most the model's, fit the memory; may be 0.
  uint32_t most_layers(uint32_t stage) const;
  Traffic traffic(uint32_t stage, uint32_t layers) const;

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
  bool last(uint32_t stage) const { return stage + 1 == stages(); }

  const Problem& problem_;
  const Shape& shape_;
  CommTimes& comm_;
  uint32_t micro_batches_;
  double tokens_;  // of a micro-batch
  std::vector<PartTimes> parts_;
  std::vector<Place> places_;  // by stage
};

}  // namespace pacecar::plan
