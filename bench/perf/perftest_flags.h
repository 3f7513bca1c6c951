// perftest's flags (6.x, ib_write_bw and ib_write_lat) that do not exist here, each with the
// reason, so that the error for a perftest command line names the flag to leave out, and its
// replacement.
#pragma once

#include <string>
#include <string_view>

namespace pacecar::perf {

// The error for a flag of perftest that `pacecar bw` and `lat` do not have; empty: perftest does
// not have it either. `name` as written: "-R", "--rdma_cm".
std::string answer_to_perftest_flag(std::string_view name);

}  // namespace pacecar::perf
