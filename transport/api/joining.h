// Making connections: the bootstrap carries what the messengers of all lanes tell each other.
#pragma once

#include <memory>

#include "transport/api/own_devices.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/params.h"
#include "transport/engine/bootstrap/auth.h"

namespace pacecar {

// From and to the device that was asked for, or, where no NIC of the peer's has a network of it,
// one that stands in for it.
Result<std::unique_ptr<Listener>> make_listener(const OwnDevices& own, const Params& params,
                                                const bootstrap::ClusterKey& key);
Result<std::unique_ptr<Connecting>> make_connecting(const OwnDevices& own, const Params& params,
                                                    const bootstrap::ClusterKey& key,
                                                    const Handle& handle,
                                                    const ConnectOptions& options);

}  // namespace pacecar
