// A transformer decoder as training sees it: parameters, operations and bytes of its parts. Pure.
// Sources: Narayanan et al. 2021 (arXiv 2104.04473, appendix) for operations, Korthikanti et al.
// 2022 (arXiv 2205.05198) for activations; both restated for SwiGLU, grouped queries and experts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace pacecar::plan {

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

// Models that are known by name.
std::span<const Model> presets();
const Model* find_preset(std::string_view name);

// Parameters of a layer: what all ranks of an expert group hold, and of the feed-forward experts.
struct LayerParameters {
  double shared = 0;
  double experts = 0;  // 0 in a dense model: its feed-forward layer is shared
  double all() const { return shared + experts; }
};
LayerParameters layer_parameters(const Model& model);
// Before the first layer, and after the last one with its norm; a stage that has both ends of a
// model that shares the embedding holds it once.
double embedding_parameters(const Model& model);
double head_parameters(const Model& model);
double parameters(const Model& model);

// Multiplications and additions of the forward pass, per token; backward takes twice as many.
// Attention counts in full, as Megatron-LM reports it, though a causal mask halves it.
double layer_flops(const Model& model);
double head_flops(const Model& model);
// Of forward and backward, per token: what model FLOP/s utilisation is counted in.
double training_flops(const Model& model);

// Elements that a layer keeps for its backward pass, per token; attention keeps no scores
// (FlashAttention). For GPT-3 it is 16 h: Korthikanti et al. have dropout masks beside it.
double activations(const Model& model);

}  // namespace pacecar::plan
