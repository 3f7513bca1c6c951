// PACECAR_PROFILER.
#pragma once

#include "transport/base/params_environment.h"

namespace pacecar::profiler {

// kOff also if the parameters are invalid: the net plugin logs why.
inline ProfilerSetting profiler_setting() {
  const Result<Params> params = load_params_from_environment({}, nullptr);
  return params ? params->profiler : ProfilerSetting::kOff;
}

}  // namespace pacecar::profiler
