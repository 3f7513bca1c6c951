// Making connections: the bootstrap carries what the two messengers tell each other.
#pragma once

#include <memory>

#include "transport/api/connections.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/params.h"

namespace pacecar {

Result<std::unique_ptr<Listener>> make_listener(const OwnNic& nic, const Params& params);
Result<std::unique_ptr<Connecting>> make_connecting(const OwnNic& nic, const Params& params,
                                                    const Handle& handle, uint32_t weight);

}  // namespace pacecar
