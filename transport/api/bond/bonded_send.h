// The sending end of a bonded connection: divides each message among the lanes; when a lane is
// lost, sends what the receiver lacks again over the others.
#pragma once

#include <memory>
#include <vector>

#include "transport/api/bond/keeper.h"
#include "transport/api/bond/lanes.h"
#include "transport/api/pacecar.hpp"

namespace pacecar {

// At most kMaxLanes lanes, known to their messengers.
std::unique_ptr<SendConnection> make_bonded_send(std::vector<BondLane> lanes,
                                                 std::shared_ptr<BondKeeper> keeper);

}  // namespace pacecar
