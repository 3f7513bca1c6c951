// Log lines and errors as NCCL wants them: one logger for the process, given by NCCL at init, and
// ncclResult_t instead of our error codes.
// Thread rule: every function may be called from any thread.
#pragma once

#include <string_view>

#include "net_plugin/abi/types.h"
#include "transport/api/error.h"
#include "transport/base/log.h"

namespace pacecar::plugin {

// NCCL passes the same function at every init; lines before the first one are dropped.
void set_logger(nccl::Logger logger);

// Errors and warnings come out at WARN, which NCCL prints by default.
void log(LogLevel level, std::string_view line);

// The sink for a Context.
LogSink log_sink();

// For calls that set up or tear down.
nccl::NcclResult control_result(ErrorCode code);
// For requests. kInvalidArgument means that the message exceeds its receive buffer. Mismatched
// collectives cause that, so NCCL gets ncclInvalidUsage.
nccl::NcclResult data_result(ErrorCode code);

// Logs "<what>: <message>" at WARN and returns control_result().
nccl::NcclResult report(std::string_view what, const Error& error);

}  // namespace pacecar::plugin
