// Errors as one sentence, by a format of fmt.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "transport/base/result.h"

namespace pacecar {

template <typename First, typename... More>
tl::unexpected<Error> fail(ErrorCode code, fmt::format_string<First, More...> sentence,
                           First&& first, More&&... more) {
  return fail(code, fmt::format(sentence, std::forward<First>(first), std::forward<More>(more)...));
}

template <typename... Args>
tl::unexpected<Error> invalid(fmt::format_string<Args...> sentence, Args&&... args) {
  return fail(ErrorCode::kInvalidArgument, fmt::format(sentence, std::forward<Args>(args)...));
}

}  // namespace pacecar
