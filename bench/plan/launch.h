// A strategy as text: launch parameters, which people put into their scripts, and its traffic as an
// experiment for the packet simulator. Pure.
#pragma once

#include <string>

#include "bench/plan/model.h"
#include "bench/plan/stage_costs.h"
#include "transport/base/result.h"

namespace pacecar::plan {

// The strategy's traffic over the NICs as TOML for `pacecar sim`. Each accelerator with its NIC is
// a host of the experiment, in the order of ranks. First all stages send the activations of one
// micro-batch on, and gradients back, at once. Then all data parallel groups reduce their gradients
// at once: one ring for each NIC of a host, as in NCCL. Bytes are multiplied by `scale`; comments
// have the predicted time for the same bytes. Errors: kInvalidArgument unless all hosts have NICs
// of the same rate, one for each accelerator.
Result<std::string> sim_experiment(const Problem& problem, const Strategy& strategy,
                                   CommTimes& comm, double scale);

// Arguments of Megatron-LM's pretrain_gpt.py; what it cannot express is in comment lines.
std::string megatron_launch(const Problem& problem, const Strategy& strategy);

// torchrun, and the device mesh, the split and the schedule of torch.distributed.pipelining.
std::string torch_launch(const Problem& problem, const Strategy& strategy);

}  // namespace pacecar::plan
