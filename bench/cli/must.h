// For small programs: an error is printed as one sentence and ends the program.
#pragma once

#include <errno.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <type_traits>
#include <utility>

#include "transport/base/result.h"

namespace pacecar {

[[noreturn]] inline void give_up(std::string_view sentence, int status = 1) {
  fmt::print(stderr, "{}: {}\n", program_invocation_short_name, sentence);
  std::exit(status);
}

template <typename T>
T must(Result<T> result) {
  if (!result) give_up(result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace pacecar
