// An error ends a measurement: it is thrown as a std::runtime_error with the same message.
#pragma once

#include <stdexcept>
#include <utility>

#include "transport/base/result.h"

namespace pacecar::nccl {

template <typename T>
T value_or_throw(Result<T>&& result) {
  if (!result) throw std::runtime_error(result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace pacecar::nccl
