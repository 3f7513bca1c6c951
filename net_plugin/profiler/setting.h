// PACECAR_PROFILER.
#pragma once

#include "transport/base/params_environment.h"

namespace pacecar::profiler {

// kOff, too, where the parameters cannot be read: the net plugin says why.
inline ProfilerSetting profiler_setting() {
  const Result<Params> params = load_params_from_environment({}, nullptr);
  return params ? params->profiler : ProfilerSetting::kOff;
}

}  // namespace pacecar::profiler
