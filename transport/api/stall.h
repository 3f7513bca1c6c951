// Why a connection stalls, in words.
#pragma once

#include <string>

#include "transport/base/log.h"
#include "transport/message/messenger.h"

namespace pacecar {

// kInfo if the peer is only computing, which happens in every job.
LogLevel level_of(const Stall& stall);
// `end` names the connection for people: "send to 192.0.2.1:4791 over rxe0".
std::string describe(const Stall& stall, const std::string& end);

}  // namespace pacecar
