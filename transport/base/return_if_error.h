// Passes errors of the control path on: uses the value of a call, or returns its error.
#pragma once

#include <utility>

#include "transport/base/result.h"

// Takes the value of a Result into `target`, a declaration or something to assign to. An error is
// returned from the function around it:
//   ASSIGN_OR_RETURN(const std::string text, read_text(path));
#define ASSIGN_OR_RETURN(target, ...) \
  PACECAR_ASSIGN_OR_RETURN(PACECAR_JOIN(result_, __COUNTER__), target, __VA_ARGS__)
// The same for a Result without a value, or one whose value is not needed.
#define RETURN_IF_ERROR(...) \
  PACECAR_RETURN_IF_ERROR(PACECAR_JOIN(result_, __COUNTER__), __VA_ARGS__)

#define PACECAR_JOIN(a, b) PACECAR_JOIN_EXPANDED(a, b)
#define PACECAR_JOIN_EXPANDED(a, b) a##b
#define PACECAR_ASSIGN_OR_RETURN(result, target, ...)            \
  auto result = __VA_ARGS__;                                     \
  if (!result) return tl::unexpected(std::move(result).error()); \
  target = *std::move(result)
#define PACECAR_RETURN_IF_ERROR(result, ...) \
  if (auto result = __VA_ARGS__; !result) return tl::unexpected(std::move(result).error())
