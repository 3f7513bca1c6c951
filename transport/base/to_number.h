// Parses a text that is one number and nothing else.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace pacecar {

// `format`: as std::from_chars takes it; a base, or a std::chars_format.
template <typename T>
std::optional<T> to_number(std::string_view text, auto... format) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, format...);
  return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

}  // namespace pacecar
