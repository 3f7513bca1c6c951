// Where the device's lines go: to the error stream, as far as PACECAR_LOG lets them.
#pragma once

#include <string>

#include "transport/base/log.h"

namespace pacecar::ibverbs {

// Reads PACECAR_LOG when it is first called.
LogSink log_sink();
void log_warning(const std::string& line);

}  // namespace pacecar::ibverbs
