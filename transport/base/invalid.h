// An error of the caller's input as one sentence, by a format of fmt.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "transport/base/result.h"

namespace pacecar {

template <typename... Args>
tl::unexpected<Error> invalid(fmt::format_string<Args...> sentence, Args&&... args) {
  return fail(ErrorCode::kInvalidArgument, fmt::format(sentence, std::forward<Args>(args)...));
}

}  // namespace pacecar
