// Commands that launch a plan have the plan's layout, or say why they cannot.
#include "bench/plan/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace pacecar::plan::launch_test {
namespace {

using testing::HasSubstr;
using testing::Not;

Problem two_kinds() {
  Problem problem;
  problem.model = *std::ranges::find(presets(), "llama2-70b", &Model::name);
  problem.accelerators = {{.name = "old", .hosts = 2}, {.name = "new", .hosts = 4}};
  problem.training.global_batch = 256;
  return problem;
}

TEST(PlanLaunch, MegatronGetsLayoutWhereStagesDiffer) {
  const Strategy strategy{{{{0, 1, 8}, {1, 2, 8}}, 2, 2, 1, Recompute::kFull}, {10, 30, 40}, 1};
  const std::string text = megatron_launch(two_kinds(), strategy);
  EXPECT_THAT(text, HasSubstr("--tensor-model-parallel-size 8 --pipeline-model-parallel-size 3"));
  EXPECT_THAT(text, HasSubstr("--decoder-first-pipeline-num-layers 10 "
                              "--decoder-last-pipeline-num-layers 40"));
  EXPECT_THAT(text, HasSubstr("--micro-batch-size 2 --global-batch-size 256"));
  EXPECT_THAT(text, HasSubstr("--recompute-granularity full"));
  EXPECT_THAT(text, HasSubstr("torchrun --nnodes 6 --nproc-per-node 8"));
  EXPECT_THAT(text, HasSubstr("16 ranks on hosts of 8 ('old'), then 32 ranks"));
  EXPECT_THAT(text, Not(HasSubstr("left out")));
  const Strategy uneven{{{{0, 2, 4}, {1, 2, 8}}, 1, 1}, {10, 1, 30, 39}, 1};
  EXPECT_THAT(megatron_launch(two_kinds(), uneven),
              HasSubstr("--pipeline-model-parallel-layout \"Et*10|t|t*30|t*39L\""));
}

TEST(PlanLaunch, EqualStagesNeedNoLayout) {
  const Strategy strategy{{{{1, 4, 8}}, 1, 1}, {20, 20, 20, 20}, 1};
  const std::string text = megatron_launch(two_kinds(), strategy);
  EXPECT_THAT(text, Not(HasSubstr("layout")));
  EXPECT_THAT(text, Not(HasSubstr("decoder-first")));
  EXPECT_THAT(text, Not(HasSubstr("recompute")));
  EXPECT_THAT(text, HasSubstr("16 accelerators are left out"));
}

TEST(PlanLaunch, UnequalTensorGroupsAreRefusedInWords) {
  const Strategy strategy{{{{0, 1, 4}, {1, 2, 8}}, 2, 1}, {20, 30, 30}, 1};
  EXPECT_THAT(megatron_launch(two_kinds(), strategy), HasSubstr("equal_tensor = true"));
}

}  // namespace
}  // namespace pacecar::plan::launch_test
