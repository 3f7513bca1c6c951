// Takes a text apart.
#pragma once

#include <algorithm>
#include <string_view>

namespace pacecar {

// Removes all up to the first `end`, and this, from `text`, and returns what was before it; without
// an `end` that is the whole text.
inline std::string_view take_until(std::string_view& text, char end) {
  const size_t at = std::min(text.find(end), text.size());
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return taken;
}

}  // namespace pacecar
