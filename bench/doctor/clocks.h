// How far the clocks of ranks are apart, by their messages: none has come before it left. Nothing
// is assumed of clocks that hosts keep in step, nor that processes of a host share one. Pure.
#pragma once

#include <vector>

#include "bench/doctor/collectives.h"

namespace pacecar::doctor {

// Seconds to be taken from each member's clock for that of the first one; in the middle of what the
// messages leave open, so that it is wrong by half of the quickest way there and back at most. 0
// where no messages lead to a member.
std::vector<double> clock_offsets(const std::vector<Member>& members);

}  // namespace pacecar::doctor
