#include "bench/plan/model.h"

#include <algorithm>
#include <array>

namespace pacecar::plan {
namespace {

double kv_width(const Model& model) {
  return static_cast<double>(model.hidden) / model.heads * model.kv_heads;
}

double attention_matrices(const Model& model) {
  const double h = model.hidden;
  return 2 * h * h + 2 * h * kv_width(model);
}

// Parameters of one expert's matrices, or of the dense layer's matrices.
double feed_forward_matrices(const Model& model) {
  return (model.gated ? 3.0 : 2.0) * model.hidden * model.ffn;
}

double router_matrix(const Model& model) {
  return model.experts > 1 ? double{1} * model.hidden * model.experts : 0;
}

}  // namespace

double compute_s(const Accelerator& accelerator, double flops, double bytes) {
  return std::max(flops / (accelerator.flops * accelerator.efficiency),
                  bytes / accelerator.memory_rate);
}

bool calibrate(Accelerator& accelerator, std::span<const Sample> samples) {
  double x = 0;
  double y = 0;
  double xx = 0;
  double xy = 0;
  for (const Sample& sample : samples) {
    x += sample.flops;
    y += sample.seconds;
    xx += sample.flops * sample.flops;
    xy += sample.flops * sample.seconds;
  }
  const auto n = static_cast<double>(samples.size());
  const double spread = n * xx - x * x;
  double slope = spread > 1e-9 * xx ? (n * xy - x * y) / spread : xy / xx;
  double overhead = (y - slope * x) / n;
  if (spread <= 1e-9 * xx || overhead < 0) {
    slope = xy / xx;
    overhead = 0;
  }
  const double efficiency = 1 / (slope * accelerator.flops);
  if (!(slope > 0) || efficiency > 1) return false;
  accelerator.efficiency = efficiency;
  accelerator.overhead_s = overhead;
  return true;
}

std::span<const Model> presets() {
  // Brown et al. 2020, table 2.1; Touvron et al. 2023 (arXiv 2307.09288); Llama 3 (arXiv
  // 2407.21783), table 3; Jiang et al. 2024 (arXiv 2401.04088), table 1. Of Llama-2-140B nothing
  // but its name is published: assumed are the layers of the 70B model, twice as many.
  static const std::array<Model, 7> kPresets{{
      {"llama2-7b", 32, 4096, 32, 32, 11008, 32000, 4096},
      {"llama2-13b", 40, 5120, 40, 40, 13824, 32000, 4096},
      {"llama2-70b", 80, 8192, 64, 8, 28672, 32000, 4096},
      {"llama2-140b", 160, 8192, 64, 8, 28672, 32000, 4096},
      {"llama3-405b", 126, 16384, 128, 8, 53248, 128256, 8192},
      {"mixtral-8x7b", 32, 4096, 32, 8, 14336, 32000, 4096, true, false, 8, 2},
      {"gpt3-175b", 96, 12288, 96, 96, 49152, 50257, 2048, false, true},
  }};
  return kPresets;
}

ParameterCount layer_parameters(const Model& model) {
  const double h = model.hidden;
  ParameterCount found;
  found.shared = attention_matrices(model) + router_matrix(model) + 2 * h;  // two norms
  // Two more vectors of the norms, and the biases of six matrices.
  if (model.gpt) found.shared += 2 * h + 2 * h + 2 * kv_width(model) + h + model.ffn;
  (model.experts > 1 ? found.experts : found.shared) +=
      feed_forward_matrices(model) * model.experts;
  return found;
}

double embedding_parameters(const Model& model) {
  const double h = model.hidden;
  return h * model.vocabulary + (model.gpt ? h * model.sequence : 0);
}

double head_parameters(const Model& model) {
  return double{1} * model.hidden * model.vocabulary + model.hidden * (model.gpt ? 2.0 : 1.0);
}

double shared_parameters(const Model& model) {
  return model.gpt ? double{1} * model.hidden * model.vocabulary : 0;
}

double parameters(const Model& model) {
  return layer_parameters(model).all() * model.layers + embedding_parameters(model) +
         head_parameters(model) - shared_parameters(model);
}

double layer_flops(const Model& model) {
  const double matrices =
      attention_matrices(model) + router_matrix(model) + feed_forward_matrices(model) * model.top_k;
  return 2 * matrices + 4.0 * model.sequence * model.hidden;
}

double head_flops(const Model& model) { return 2.0 * model.hidden * model.vocabulary; }

double training_flops(const Model& model) {
  return 3 * (layer_flops(model) * model.layers + head_flops(model));
}

double activations(const Model& model) {
  const double h = model.hidden;
  // Inputs of two norms, of the queries' matrices, of attention's output matrix, the queries, and
  // the input of the feed-forward layer; keys and values.
  const double attention = 6 * h + 2 * kv_width(model);
  return attention + (model.gated ? 3.0 : 2.0) * model.ffn * model.top_k;
}

}  // namespace pacecar::plan
