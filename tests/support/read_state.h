// Reads one page of one process's state, as its clients do.
#pragma once

#include <string>

#include "transport/state/ask.h"
#include "transport/state/state_server.h"

namespace pacecar::test {

inline Result<std::string> read_state(const StateDirectory& directory, const std::string& name,
                                      Duration limit = Duration::from_s(60),
                                      std::string_view page = kWholeState) {
  const StatePlace place{&directory, name};
  return ask_all({&place, 1}, {.page = page, .limit = limit}).at(0);
}

}  // namespace pacecar::test
