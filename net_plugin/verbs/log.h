// The log of the device: the error stream, filtered by PACECAR_LOG.
//
// Thread rule: any thread.
#pragma once

#include <string>

#include "transport/base/log.h"

namespace pacecar::ibverbs {

// Reads PACECAR_LOG when it is first called.
LogSink log_sink();
void log_warning(const std::string& line);

}  // namespace pacecar::ibverbs
