// What keeps a connection from moving, in words.
#pragma once

#include <string>

#include "transport/base/log.h"
#include "transport/message/messenger.h"

namespace pacecar {

// A peer that computes is waited for in all jobs: that is worth knowing, and no fault.
LogLevel level_of(const Stall& stall);
// `end` is how people know the connection: "send to 192.0.2.1:4791 over rxe0".
std::string describe(const Stall& stall, const std::string& end);

}  // namespace pacecar
