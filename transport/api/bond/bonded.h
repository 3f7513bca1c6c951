// The two ends of a bonded connection. The sender divides each message among the lanes; the
// receiver posts each buffer on all of them. When a lane is lost, they agree which buffers are
// filled. The receiver posts the others again, and the sender sends their messages again over the
// other lanes. Thread rule: as for other connections.
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
std::unique_ptr<ReceiveConnection> make_bonded_receive(std::vector<BondLane> lanes,
                                                       std::shared_ptr<BondKeeper> keeper);

}  // namespace pacecar
