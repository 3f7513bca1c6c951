// Reads the state of this host's running processes, each at its socket.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/doctor/documents.h"
#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/state/state_server.h"

namespace pacecar::doctor {

// The error where nobody answers.
inline constexpr const char* kNoProcess =
    "no process with Pacecar is to be seen: run as the job's user or root, on its host, and in "
    "containers with PACECAR_STATE_DIR on a directory that both see";

// Where this host's processes serve their state: PACECAR_STATE_DIR, or the usual directories.
// Errors: kInvalidArgument (it is none).
Result<std::vector<std::string>> state_directories();

struct GatherOptions {
  std::vector<std::string> directories;
  uint64_t pid = 0;  // 0: all
  Duration between;  // two samples; 0: one sample
  std::string_view page = kWholeState;
  // For all answers of a sample. Longer than a process may be busy with another caller.
  Duration limit = Duration::from_s(3);
  size_t max_bytes = 32U << 20;  // of an answer
};

struct Gathered {
  Evidence evidence;
  std::vector<std::string> warnings;  // about what could not be read
};

// Takes `between`, and longer where processes do not answer. Removes stale sockets.
Gathered gather(const GatherOptions& options);

}  // namespace pacecar::doctor
