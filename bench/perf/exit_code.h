// The exit codes of every subcommand, as --help documents them.
#pragma once

#include "transport/base/result.h"

namespace pacecar::perf {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,           // the peer, the network or the machine; preflight found an error
  kExitUsage = 2,            // a flag or parameter that cannot be
  kExitThresholdMissed = 3,  // measured, and worse than --min-gbits or --max-usec asks;
                             // preflight found warnings, but no error
};

// The library blames what it was given, and so the flags, with kInvalidArgument.
inline ExitCode exit_code_of(const Error& error) {
  return error.code == ErrorCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

}  // namespace pacecar::perf
