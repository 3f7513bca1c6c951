// Splits text at a character.
#pragma once

#include <algorithm>
#include <string_view>

namespace pacecar {

// Removes everything up to and including the first `end` from `text`, and returns what preceded it.
// Without an `end`: all.
inline std::string_view take_until(std::string_view& text, char end) {
  const size_t at = std::min(text.find(end), text.size());
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return taken;
}

}  // namespace pacecar
