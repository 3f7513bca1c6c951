// Loads the parameters from the command line, the environment and files. Not pure: each call reads
// the environment and files. Thread rule: no other thread changes the environment meanwhile.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "transport/base/params.h"
#include "transport/base/result.h"

namespace pacecar {

inline constexpr const char* kSystemParamFile = "/etc/pacecar.conf";

// The sources, in decreasing priority:
//   1. `given` by the caller (a command line)
//   2. environment variables that begin with PACECAR_
//   3. the file that PACECAR_CONF_FILE names (given or in the environment)
//   4. `system_file`, which need not exist
//   5. `defaults`
//   6. NCCL_SOCKET_IFNAME, for PACECAR_BOOTSTRAP
// Errors: as load_params() and parse_param_file(); kNotFound, kPermission, kSystem or
// kInvalidArgument for a file that cannot be read, with its name.
Result<Params> load_params_from_environment(std::span<const ParamSetting> given,
                                            std::vector<std::string>* warnings,
                                            const std::string& system_file = kSystemParamFile,
                                            std::span<const ParamSetting> defaults = {});

}  // namespace pacecar
