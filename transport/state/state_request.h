// What callers ask a process for at its state socket: the pages that there are, and the line that
// names one. Pure.
#pragma once

#include <string_view>

namespace pacecar {

inline constexpr std::string_view kWholeState = "/state";      // JSON, every flow
inline constexpr std::string_view kStateSummary = "/summary";  // JSON, sums over the flows
inline constexpr std::string_view kStateMetrics = "/metrics";  // Prometheus' text
inline constexpr std::string_view kStateProfile = "/profile";  // of net_plugin/profiler, JSON
inline constexpr const char* kJsonType = "application/json";

struct StateRequest {
  std::string_view path;  // empty: no request that we know
  bool headers = false;   // the answer has them too
};

// Of "GET PATH" and the end of the line, as HTTP began, or "GET PATH HTTP/1.1" and so on. `text` is
// any caller's; the result points into it.
StateRequest parse_state_request(std::string_view text);

}  // namespace pacecar
