// What a failed request means, in words.
#pragma once

#include <string>

#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/message/message_request.h"

namespace pacecar {

// `peer` is how people know the other side: "192.0.2.1:4791 (soft:udp:eth0)".
Error describe(MessageFailure failure, const std::string& peer, Duration timeout);

}  // namespace pacecar
