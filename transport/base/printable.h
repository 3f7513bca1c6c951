// Untrusted text made safe for a terminal, a log or a document.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace pacecar {

// With '?' for all that is not printable ASCII.
inline std::string printable(std::string_view text) {
  std::string result(text);
  std::ranges::replace_if(result, [](char c) { return c < ' ' || c > '~'; }, '?');
  return result;
}

}  // namespace pacecar
