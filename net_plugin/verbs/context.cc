// The calls of a context, and the process's log.
#include <cstdio>

#include "net_plugin/verbs/log.h"
#include "net_plugin/verbs/objects.h"
#include "transport/base/params_environment.h"

namespace pacecar::ibverbs {

void set_attribute_calls(verbs_context& verbs);
void set_completion_calls(verbs_context& verbs);
void set_queue_pair_calls(verbs_context& verbs);
void set_shared_receive_calls(verbs_context& verbs);
void set_window_calls(verbs_context& verbs);

void set_calls(verbs_context& verbs) {
  set_attribute_calls(verbs);
  set_completion_calls(verbs);
  set_queue_pair_calls(verbs);
  set_shared_receive_calls(verbs);
  set_window_calls(verbs);
}

LogSink log_sink() {
  static const LogLevel most = [] {
    const auto params = load_params_from_environment({}, nullptr);
    return params ? params->log : LogLevel::kWarn;
  }();
  return {[](void*, LogLevel, std::string_view line) {
            std::fprintf(stderr, "pacecar: %.*s\n", static_cast<int>(line.size()), line.data());
          },
          nullptr, most};
}

void log_warning(const std::string& line) { log_sink()(LogLevel::kWarn, line); }

}  // namespace pacecar::ibverbs
