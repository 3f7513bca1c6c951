// Requests a page from many processes at once: stopped ones do not delay the others. Any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/state/state_directory.h"

namespace pacecar {

struct StatePlace {
  const StateDirectory* directory = nullptr;
  std::string name;  // of the socket
};

struct StateQuestion {
  std::string_view page;
  Duration limit;  // for all answers together
  size_t max_bytes = 32U << 20;
};

// In the order of `places`. Errors of each: kNotFound (no listener any more), kPeer (no answer of
// at most max_bytes within the limit), kPermission (not the owner), kSystem.
std::vector<Result<std::string>> ask_all(std::span<const StatePlace> places,
                                         const StateQuestion& question);

}  // namespace pacecar
