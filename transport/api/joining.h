// Making connections: the bootstrap carries what the messengers of all lanes tell each other.
#pragma once

#include <memory>
#include <vector>

#include "transport/api/connections.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/params.h"

namespace pacecar {

class BondKeeper;

// What a connection begins or ends at: one NIC, or several that stand for one.
struct OwnDevice {
  std::vector<OwnNic> nics;
  std::shared_ptr<BondKeeper> keeper;
};

Result<std::unique_ptr<Listener>> make_listener(const OwnDevice& device, const Params& params);
Result<std::unique_ptr<Connecting>> make_connecting(const OwnDevice& device, const Params& params,
                                                    const Handle& handle, uint32_t weight);

}  // namespace pacecar
