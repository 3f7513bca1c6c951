// The problem of a plan, and a strategy for it. Plain data.
//
// A pipeline of stages; each stage is a group of equal accelerators: `tensor` of them, within a
// host, divide each layer, and `data` such groups train on different samples. Stages of a kind are
// next to each other, so that only few pipeline links join unequal hosts. (HETHUB's three levels.)
#pragma once

#include <cstdint>
#include <vector>

#include "bench/plan/model.h"
#include "net_plugin/predict/cluster.h"
#include "net_plugin/predict/collective.h"

namespace pacecar::plan {

enum class Recompute : uint8_t {
  kNone,  // all activations are kept, except the scores of attention
  kFull,  // only the input of each layer is kept; the forward pass is repeated
};

// Bytes per parameter, as in Megatron-LM's distributed optimizer: 6, and 12 that may be divided
// among the ranks of a data parallel group.
struct Precision {
  double element = 2;   // of weights and activations in computations and messages
  double gradient = 4;  // in the sum
  double optimizer = 12;
};
constexpr Precision kBf16{};
constexpr Precision kFp32{4, 4, 8};

struct Training {
  uint32_t global_batch = 1024;                     // samples per step
  std::vector<uint32_t> micro_batches = {1, 2, 4};  // samples that a pipeline takes at once
  std::vector<uint32_t> tensor = {1, 2, 4, 8};
  std::vector<uint32_t> experts = {1};  // ranks among which a layer's experts are divided
  std::vector<Recompute> recompute = {Recompute::kNone, Recompute::kFull};
  uint32_t most_stages = 64;    // of a pipeline
  bool equal_tensor = true;     // one tensor degree for all kinds, as Megatron-LM requires
  bool shard_optimizer = true;  // ZeRO-1: each data parallel rank has a part of the states
  double overlap = 1;  // part of the last backward pass that hides the reduction of gradients, and
                       // of the first forward pass that hides the all-gather of weights
  double usable_memory = 0.9;  // of an accelerator's: the rest is the framework's
  Precision precision;
};

struct Problem {
  Model model;
  std::vector<Accelerator> accelerators;
  predict::Cluster cluster;  // groups[i] holds the hosts of accelerators[i]
  predict::LibraryCosts overheads = predict::nccl_costs();
  Training training;
};

// Stages on one kind of accelerator.
struct Part {
  uint32_t kind = 0;
  uint32_t stages = 1;
  uint32_t tensor = 1;
  bool operator==(const Part&) const = default;
};

// A strategy without the division of layers among the stages.
struct Shape {
  std::vector<Part> parts;  // in the order of the pipeline; each kind at most once
  uint32_t data = 1;
  uint32_t micro_batch = 1;
  uint32_t experts = 1;
  Recompute recompute = Recompute::kNone;

  bool operator==(const Shape&) const = default;
  uint32_t stages() const {
    uint32_t all = 0;
    for (const Part& part : parts) all += part.stages;
    return all;
  }
  const Part& part_of(uint32_t stage) const {
    size_t i = 0;
    for (; stage >= parts[i].stages; ++i) stage -= parts[i].stages;
    return parts[i];
  }
  uint32_t ranks(const Part& part) const { return part.stages * part.tensor * data; }
  uint32_t micro_batches(const Training& training) const {
    return training.global_batch / (data * micro_batch);
  }
};

struct Strategy {
  Shape shape;
  std::vector<uint32_t> layers;  // by stage
  double step_s = 0;
};

}  // namespace pacecar::plan
