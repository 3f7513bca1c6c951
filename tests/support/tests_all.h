// TESTS_ALL=1 asks for every draw of property and model tests; a usual run makes fewer.
#pragma once

#include <cstdlib>
#include <string_view>

namespace pacecar {

inline bool tests_all() {
  const char* const value = std::getenv("TESTS_ALL");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace pacecar
