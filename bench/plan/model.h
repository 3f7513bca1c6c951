// The problem of a plan, and a strategy for it: a transformer decoder in training (parameters,
// operations and bytes of its parts), accelerators, hosts and their network. Pure.
// Sources: Narayanan et al. 2021 (arXiv 2104.04473, appendix) for operations, Korthikanti et al.
// 2022 (arXiv 2205.05198) for activations; both restated for SwiGLU, grouped queries and experts.
//
// A strategy is a pipeline of stages; each stage is a group of equal accelerators: `tensor` of
// them, within a host, divide each layer, and `data` such groups train on different samples. Stages
// of a kind are next to each other, so that only few links join unequal hosts. (HETHUB's three
// levels.)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "net_plugin/predict/cluster.h"
#include "net_plugin/predict/collective.h"

namespace pacecar::plan {

// A kind of accelerator, with a roofline model of its speed.
struct Accelerator {
  std::string name;
  uint32_t hosts = 1;
  uint32_t per_host = 8;
  double flops = 312e12;      // peak, per second, at the precision of training
  double efficiency = 0.5;    // part of the peak that the matrices of a layer reach
  double overhead_s = 0;      // per layer and pass, beyond the roofline
  double memory = 80e9;       // bytes
  double memory_rate = 2e12;  // bytes per second

  uint32_t count() const { return hosts * per_host; }
};

// Seconds for `flops` operations that read and write `bytes` bytes of memory.
double compute_s(const Accelerator& accelerator, double flops, double bytes);

// A measured pass through one layer.
struct Sample {
  double flops = 0;
  double seconds = 0;
};
// Fits efficiency and overhead to the samples (least squares; with one sample, or if the fitted
// overhead is below 0, the overhead is 0). False, and nothing is set, if more operations take less
// time, or the peak is exceeded.
bool calibrate(Accelerator& accelerator, std::span<const Sample> samples);

struct Model {
  std::string name;
  uint32_t layers = 0;
  uint32_t hidden = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;  // groups of queries share keys and values; else equal to `heads`
  uint32_t ffn = 0;       // width of the feed-forward layer
  uint32_t vocabulary = 0;
  uint32_t sequence = 0;  // tokens of a training sample
  bool gated = true;      // SwiGLU: three matrices in the feed-forward layer, else two
  bool gpt = false;       // as in GPT-3: biases, learned positions, the output shares the embedding
  uint32_t experts = 1;   // feed-forward layers of which `top_k` see a token; 1: dense
  uint32_t top_k = 1;
};

// Known models, with unique names.
std::span<const Model> presets();

// Numbers of parameters: `shared` ones are held by each rank of an expert group.
struct ParameterCount {
  double shared = 0;
  double experts = 0;  // 0 in a dense model, whose feed-forward layer counts as shared
  double all() const { return shared + experts; }
};
ParameterCount layer_parameters(const Model& model);
// Before the first layer, and after the last one with its norm.
double embedding_parameters(const Model& model);
double head_parameters(const Model& model);
// Parameters that both ends of a GPT share (else 0): a stage with both ends holds them once.
double shared_parameters(const Model& model);
double parameters(const Model& model);

// Multiplications and additions of the forward pass, per token; backward takes twice as many.
// Attention counts in full, as Megatron-LM reports it, though a causal mask halves it.
double layer_flops(const Model& model);
double head_flops(const Model& model);
// Operations of forward and backward pass, per token, as model FLOP/s utilisation counts them.
double training_flops(const Model& model);

// Elements that a layer keeps for its backward pass, per token; attention keeps no scores
// (FlashAttention). For GPT-3 it is 16 h; Korthikanti et al. add dropout masks.
double activations(const Model& model);

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
  double usable_memory = 0.9;  // part of an accelerator's memory; the framework uses the rest
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
