// A transformer decoder in training: parameters, operations and bytes of its parts. Pure.
// Sources: Narayanan et al. 2021 (arXiv 2104.04473, appendix) for operations, Korthikanti et al.
// 2022 (arXiv 2205.05198) for activations; both restated for SwiGLU, grouped queries and experts.
#pragma once

#include <cstdint>
#include <span>
#include <string>

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

// Seconds for operations that read and write so many bytes of memory.
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

// Parameters of a layer: those that each rank of an expert group holds, and those of the experts.
struct LayerParameters {
  double shared = 0;
  double experts = 0;  // 0 in a dense model, whose feed-forward layer counts as shared
  double all() const { return shared + experts; }
};
LayerParameters layer_parameters(const Model& model);
// Before the first layer, and after the last one with its norm.
double embedding_parameters(const Model& model);
double head_parameters(const Model& model);
// Of both ends: a stage that has both ends of the model holds them once. 0 except for GPT.
double shared_parameters(const Model& model);
double parameters(const Model& model);

// Multiplications and additions of the forward pass, per token; backward takes twice as many.
// Attention counts in full, as Megatron-LM reports it, though a causal mask halves it.
double layer_flops(const Model& model);
double head_flops(const Model& model);
// Of forward and backward pass, per token, as model FLOP/s utilisation counts them.
double training_flops(const Model& model);

// Elements that a layer keeps for its backward pass, per token; attention keeps no scores
// (FlashAttention). For GPT-3 it is 16 h; Korthikanti et al. add dropout masks.
double activations(const Model& model);

}  // namespace pacecar::plan
