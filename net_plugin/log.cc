#include "net_plugin/log.h"

#include <atomic>
#include <string>

namespace pacecar::plugin {
namespace {

using nccl::LogSeverity;
using nccl::NcclResult;

std::atomic<nccl::Logger> current_logger{nullptr};

}  // namespace

void set_logger(nccl::Logger logger) {
  if (logger != nullptr) current_logger.store(logger, std::memory_order_release);
}

void log(LogLevel level, std::string_view line) {
  const nccl::Logger logger = current_logger.load(std::memory_order_acquire);
  if (logger == nullptr) return;
  const LogSeverity severity = level == LogLevel::kInfo    ? LogSeverity::kInfo
                               : level == LogLevel::kTrace ? LogSeverity::kTrace
                                                           : LogSeverity::kWarn;
  logger(severity, nccl::kSubsystemInit | nccl::kSubsystemNet, "pacecar", 0, "NET/Pacecar : %.*s",
         static_cast<int>(line.size()), line.data());
}

LogSink log_sink() {
  return LogSink{[](void*, LogLevel level, std::string_view line) { log(level, line); }, nullptr};
}

NcclResult control_result(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return NcclResult::kInvalidArgument;
    case ErrorCode::kPeer:
    case ErrorCode::kStale: return NcclResult::kRemoteError;
    case ErrorCode::kNotFound:
    case ErrorCode::kUnavailable:
    case ErrorCode::kPermission:
    case ErrorCode::kSystem: return NcclResult::kSystemError;
    case ErrorCode::kInternal: return NcclResult::kInternalError;
  }
  return NcclResult::kInternalError;
}

NcclResult data_result(ErrorCode code) {
  return code == ErrorCode::kInvalidArgument ? NcclResult::kInvalidUsage : control_result(code);
}

NcclResult report(std::string_view call, const Error& error) {
  log(LogLevel::kWarn, std::string(call) + ": " + error.message);
  return control_result(error.code);
}

NcclResult misuse(std::string_view sentence) {
  log(LogLevel::kError, sentence);
  return NcclResult::kInternalError;
}

}  // namespace pacecar::plugin
