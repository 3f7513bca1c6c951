// The device's log: the error stream, filtered by PACECAR_LOG.
#pragma once

#include <string>

#include "transport/base/log.h"

namespace pacecar::ibverbs {

// Reads PACECAR_LOG when it is first called.
LogSink log_sink();
void log_warning(const std::string& line);

}  // namespace pacecar::ibverbs
