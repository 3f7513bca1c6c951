// The receiving end of a bonded connection: posts each buffer on all lanes; when a lane is lost,
// agrees with the sender which buffers are filled, and posts the others again.
#pragma once

#include <memory>
#include <vector>

#include "transport/api/bond/keeper.h"
#include "transport/api/bond/lanes.h"
#include "transport/api/pacecar.hpp"

namespace pacecar {

// At most kMaxLanes lanes, known to their messengers.
std::unique_ptr<ReceiveConnection> make_bonded_receive(std::vector<BondLane> lanes,
                                                       std::shared_ptr<BondKeeper> keeper);

}  // namespace pacecar
