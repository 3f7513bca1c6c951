// Untrusted text made safe for a terminal, a log or a document.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace pacecar {

// Replaces each character that is not printable ASCII by '?', and the part past `longest` by "...".
inline std::string printable(std::string_view text, size_t longest = std::string_view::npos) {
  std::string result(text.substr(0, longest));
  std::ranges::replace_if(
      result, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text.size() > longest ? result + "..." : result;
}

}  // namespace pacecar
