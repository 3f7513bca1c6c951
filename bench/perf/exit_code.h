// The exit codes of every subcommand, as --help documents them.
#pragma once

#include "transport/base/result.h"

namespace pacecar::perf {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,           // the peer, the network or the machine; preflight found an error
  kExitUsage = 2,            // an invalid flag or parameter
  kExitThresholdMissed = 3,  // the result is worse than --min-gbits or --max-usec asks;
                             // preflight found warnings, but no error
};

// kInvalidArgument of the library means that a flag or parameter was wrong.
inline ExitCode exit_code_of(const Error& error) {
  return error.code == ErrorCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

}  // namespace pacecar::perf
