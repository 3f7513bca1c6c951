// A strategy as the parameters that start it. Text for people to put into their scripts.
#pragma once

#include <string>

#include "bench/plan/comm_times.h"
#include "bench/plan/strategy.h"
#include "transport/base/result.h"

namespace pacecar::plan {

// A strategy's traffic over the NICs, as an experiment for `pacecar sim`, to compare the packet
// simulator with the predictor.

// TOML. A host of the experiment is an accelerator with its NIC, in the order of ranks. First all
// stages send one micro-batch's activations on, and gradients back, at once; then all data parallel
// groups reduce their gradients at once: a ring of NICs for each of a host's NICs, as NCCL does it.
// Bytes are multiplied by `scale`; comments tell what the predictor says of the same bytes.
// Errors: kInvalidArgument where kinds have unequal NICs, or not one for each accelerator.
Result<std::string> sim_experiment(const Problem& problem, const Strategy& strategy,
                                   CommTimes& comm, double scale);

// Arguments of Megatron-LM's pretrain_gpt.py; what it cannot express is in comment lines.
std::string megatron_launch(const Problem& problem, const Strategy& strategy);

// torchrun, and the device mesh, the split and the schedule of torch.distributed.pipelining.
std::string torch_launch(const Problem& problem, const Strategy& strategy);

// The layers of the stages as --pipeline-model-parallel-layout wants them: "Et*5|t*14|...|t*13L".
std::string megatron_layout(const std::vector<uint32_t>& layers);

}  // namespace pacecar::plan
