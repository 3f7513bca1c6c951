// What a failed request means, in words.
#pragma once

#include <string>

#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/message/message_request.h"

namespace pacecar {

// `peer` is how people know the other side: "192.0.2.1:4791 (soft:udp:eth0)".
// `fault` is what the NIC has to say about it; may be empty.
Error describe(MessageFailure failure, const std::string& peer, Duration timeout,
               const std::string& fault);

}  // namespace pacecar
