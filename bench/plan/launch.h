// A strategy as launch parameters, which people put into their scripts. Pure.
#pragma once

#include <string>

#include "bench/plan/model.h"

namespace pacecar::plan {

// Arguments of Megatron-LM's pretrain_gpt.py; settings without an argument are in comment lines.
std::string megatron_launch(const Problem& problem, const Strategy& strategy);

}  // namespace pacecar::plan
