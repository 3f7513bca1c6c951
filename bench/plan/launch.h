// A strategy as the parameters that start it. Text for people to put into their scripts.
#pragma once

#include <string>

#include "bench/plan/strategy.h"

namespace pacecar::plan {

// Arguments of Megatron-LM's pretrain_gpt.py; what it cannot express is in comment lines.
std::string megatron_launch(const Problem& problem, const Strategy& strategy);

// torchrun, and the device mesh, the split and the schedule of torch.distributed.pipelining.
std::string torch_launch(const Problem& problem, const Strategy& strategy);

// The layers of the stages as --pipeline-model-parallel-layout wants them: "Et*5|t*14|...|t*13L".
std::string megatron_layout(const std::vector<uint32_t>& layers);

}  // namespace pacecar::plan
