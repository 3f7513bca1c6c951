// Requests at a process's state socket: the pages, and the line that names one. Pure.
#pragma once

#include <string_view>

namespace pacecar {

inline constexpr std::string_view kWholeState = "/state";      // JSON, every flow
inline constexpr std::string_view kStateSummary = "/summary";  // JSON, sums over the flows
inline constexpr std::string_view kStateMetrics = "/metrics";  // Prometheus' text
inline constexpr std::string_view kStateProfile = "/profile";  // of net_plugin/profiler, JSON
inline constexpr const char* kJsonType = "application/json";

struct StateRequest {
  std::string_view path;  // empty: unknown request
  bool headers = false;   // the answer must have HTTP headers
};

// Parses "GET PATH" and the end of the line (HTTP 0.9), or "GET PATH HTTP/1.1" and so on. `text` is
// untrusted; the result points into it.
StateRequest parse_state_request(std::string_view text);

}  // namespace pacecar
