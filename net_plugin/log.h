// Log lines, errors and exceptions as NCCL wants them: one logger for the process, given by NCCL at
// init, and ncclResult_t instead of our error codes and of exceptions.
// Thread rule: every function may be called from any thread.
#pragma once

#include <exception>
#include <new>
#include <string_view>
#include <system_error>

#include "net_plugin/abi/types.h"
#include "transport/api/error.h"
#include "transport/base/log.h"

namespace pacecar::plugin {

// NCCL passes the same function at every init; lines before the first one are dropped.
void set_logger(nccl::Logger logger);

// Errors and warnings come out at WARN, which NCCL prints by default.
void log(LogLevel level, std::string_view line);

LogSink log_sink();  // The sink for a Context.

nccl::NcclResult control_result(ErrorCode code);  // For calls that set up or tear down.
// For requests. kInvalidArgument means that the message exceeds its receive buffer. Mismatched
// collectives cause that, so NCCL gets ncclInvalidUsage.
nccl::NcclResult data_result(ErrorCode code);

// Logs "<call>: <message>" at WARN and returns control_result().
nccl::NcclResult report(std::string_view call, const Error& error);
nccl::NcclResult misuse(std::string_view sentence);  // A call that NCCL's rules do not allow.

// The body of a call by NCCL, which no exception may reach. It returns an NcclResult.
template <typename Body>
nccl::NcclResult guarded(const Body& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    log(LogLevel::kError, "out of memory: free some, or start fewer ranks on this host");
    return nccl::NcclResult::kSystemError;
  } catch (const std::system_error& error) {  // such as no thread
    log(LogLevel::kError, error.what());
    return nccl::NcclResult::kSystemError;
  } catch (const std::exception& error) {
    return misuse(error.what());
  } catch (...) {
    return misuse("an unknown exception was thrown inside the plugin");
  }
}
// The same for a body that returns Result<void>; an error is reported.
template <typename Body>
nccl::NcclResult guarded(std::string_view call, const Body& body) noexcept {
  return guarded([&] {
    const Result<void> done = body();
    return done ? nccl::NcclResult::kSuccess : report(call, done.error());
  });
}

// Deletes an object that NCCL holds.
template <typename Object>
nccl::NcclResult destroy(void* object) noexcept {
  return guarded([&] {
    delete static_cast<Object*>(object);
    return nccl::NcclResult::kSuccess;
  });
}

}  // namespace pacecar::plugin
