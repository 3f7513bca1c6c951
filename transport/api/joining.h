// Makes connections: the bootstrap carries the offers and answers of all lanes' messengers. Thread
// rule: any; each object by one thread at a time.
#pragma once

#include <memory>

#include "transport/api/own_devices.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/params.h"
#include "transport/engine/bootstrap/auth.h"

namespace pacecar {

// The connections use the requested device, or a replacement that the peer shares a subnet with.
Result<std::unique_ptr<Listener>> make_listener(const OwnDevices& own, const Params& params,
                                                const bootstrap::ClusterKey& key);
Result<std::unique_ptr<Connecting>> make_connecting(const OwnDevices& own, const Params& params,
                                                    const bootstrap::ClusterKey& key,
                                                    const Handle& handle,
                                                    const ConnectOptions& options);

}  // namespace pacecar
