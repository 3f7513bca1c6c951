// The error that reports a failed request. Pure. Thread rule: any.
#pragma once

#include <string>

#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/message/message_request.h"

namespace pacecar {

// `peer` names the other side for people: "192.0.2.1:4791 (soft:udp:eth0)". `fault` is the NIC's
// description of the failure, and may be empty.
Error describe(MessageFailure failure, const std::string& peer, Duration timeout,
               const std::string& fault);

}  // namespace pacecar
