// A one-sided operation, as its caller sees it. Thread rule: with the group's lock.
#pragma once

#include <cstdint>
#include <optional>

#include "transport/api/error.h"

namespace pacecar::rma {

struct Operation {
  uint32_t left = 0;  // parts that are not done
  std::optional<Error> error;

  bool done() const { return left == 0 || error; }
  void fail(const Error& why) {
    if (!error) error = why;
  }
};

}  // namespace pacecar::rma
