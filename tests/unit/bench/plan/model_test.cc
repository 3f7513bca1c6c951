// Parameters and operations of models, compared with published numbers.
#include "bench/plan/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "bench/plan/stage_costs.h"

namespace pacecar::plan::model_test {
namespace {

const Model& preset(std::string_view name) {
  return *std::ranges::find(presets(), name, &Model::name);
}

double billions(const char* name) { return parameters(preset(name)) * 1e-9; }

TEST(PlanModel, ParametersAreAsPublished) {
  // Hugging Face counts of the released weights.
  EXPECT_EQ(parameters(preset("llama2-7b")), 6'738'415'616);
  EXPECT_EQ(parameters(preset("llama2-13b")), 13'015'864'320);
  EXPECT_EQ(parameters(preset("llama2-70b")), 68'976'648'192);
  EXPECT_EQ(parameters(preset("mixtral-8x7b")), 46'702'792'704);
  EXPECT_NEAR(billions("llama3-405b"), 405.9, 0.1);
  // Brown et al. 2020, table D.1: 174,600 million.
  EXPECT_NEAR(billions("gpt3-175b"), 174.6, 0.05);
  EXPECT_NEAR(billions("llama2-140b"), 140, 3);
}

TEST(PlanModel, OperationsOfGptFollowMegatronsFormula) {
  // Narayanan et al. 2021, equation 3, without recomputation (72 in place of 96):
  // 72 B s l h^2 (1 + s / 6h + V / 12 l h), per token.
  const Model& gpt = preset("gpt3-175b");
  const double h = gpt.hidden;
  const double l = gpt.layers;
  const double expected =
      72 * l * h * h * (1 + gpt.sequence / (6 * h) + gpt.vocabulary / (12 * l * h));
  EXPECT_NEAR(training_flops(gpt) / expected, 1, 1e-9);
  // Brown et al., table D.1: 3.14e23 in training on 300 billion tokens, attention left out.
  EXPECT_NEAR(training_flops(gpt) * 300e9 / 3.14e23, 1, 0.04);
}

TEST(PlanModel, ActivationsOfGptFollowKorthikanti) {
  const Model& gpt = preset("gpt3-175b");
  EXPECT_EQ(2 * activations(gpt), 32.0 * gpt.hidden);  // their 34 without 2 of dropout's masks
}

TEST(PlanModel, StageWithBothEndsHoldsASharedEmbeddingOnce) {
  for (const char* name : {"gpt3-175b", "llama2-7b", "mixtral-8x7b"}) {
    const Problem problem{.model = preset(name)};
    const Shape shape{.parts = {{}}};
    EXPECT_EQ(held_parameters(problem, shape, 0, problem.model.layers).all(),
              parameters(problem.model));
  }
}

TEST(PlanModel, SamplesCalibrateTheRoofline) {
  Accelerator accelerator{.flops = 100e12};
  const Sample samples[] = {{1e12, 0.025 + 0.001}, {4e12, 0.1 + 0.001}};
  ASSERT_TRUE(calibrate(accelerator, samples));
  EXPECT_NEAR(accelerator.efficiency, 0.4, 1e-9);
  EXPECT_NEAR(accelerator.overhead_s, 0.001, 1e-9);
  EXPECT_NEAR(compute_s(accelerator, 8e12, 0), 0.2, 1e-9);
  EXPECT_NEAR(compute_s(accelerator, 0, 2e12), 1, 1e-9);  // memory limits

  ASSERT_TRUE(calibrate(accelerator, {samples, 1}));
  EXPECT_EQ(accelerator.overhead_s, 0);
  const Sample too_fast[] = {{1e12, 0.001}};
  EXPECT_FALSE(calibrate(accelerator, too_fast));
}

}  // namespace
}  // namespace pacecar::plan::model_test
