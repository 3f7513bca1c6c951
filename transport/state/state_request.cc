#include "transport/state/state_request.h"

namespace pacecar {

StateRequest parse_state_request(std::string_view text) {
  constexpr std::string_view kGet = "GET ";
  std::string_view line = text.substr(0, text.find_first_of("\r\n"));
  if (!line.starts_with(kGet)) return {};
  line.remove_prefix(kGet.size());
  const size_t end = line.find(' ');
  if (end == std::string_view::npos) return {.path = line};
  const std::string_view version = line.substr(end + 1);
  if (!version.starts_with("HTTP/1.")) return {};
  return {.path = line.substr(0, end), .headers = true};
}

}  // namespace pacecar
