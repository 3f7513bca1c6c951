// Logging goes to a callback, so that a host program (NCCL, a test) decides where lines end up.
// Thread rule: the sink must accept calls from any thread.
#pragma once

#include <string_view>

namespace pacecar {

enum class LogLevel { kError, kWarn, kInfo, kTrace };

// `line` is one message without a line end, valid during the call.
using LogFunction = void (*)(void* context, LogLevel level, std::string_view line);

struct LogSink {
  LogFunction function = nullptr;
  void* context = nullptr;
  LogLevel most = LogLevel::kTrace;  // less important lines are dropped

  void operator()(LogLevel level, std::string_view line) const {
    if (function != nullptr && level <= most) function(context, level, line);
  }
};

}  // namespace pacecar
