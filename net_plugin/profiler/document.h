// The recorder's content at the state socket.
#pragma once

#include <string>

#include "net_plugin/profiler/recorder.h"

namespace pacecar::profiler {

// The page /profile of the process's state socket, as JSON (see README.md).
std::string profile_document(const Recorder& recorder);

}  // namespace pacecar::profiler
