// Asks the running processes of this host, each at its socket.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/doctor/documents.h"
#include "transport/base/units.h"
#include "transport/state/state_request.h"

namespace pacecar::doctor {

struct GatherOptions {
  std::vector<std::string> directories;
  uint64_t pid = 0;  // 0: all
  Duration between;  // the two looks; 0: one look
  std::string_view page = kWholeState;
  // For all answers of a look. Longer than a process may be busy with another caller.
  Duration limit = Duration::from_s(3);
  size_t max_bytes = 32U << 20;  // of an answer
};

struct Gathered {
  Evidence evidence;
  std::vector<std::string> warnings;  // of what could not be looked at
};

// Takes `between`, and longer where processes do not answer. Removes stale sockets.
Gathered gather(const GatherOptions& options);

}  // namespace pacecar::doctor
