// perftest's flags (6.x, ib_write_bw and ib_write_lat) that have no place here, each with its
// reason, so that the error for a perftest command line names the flags to leave out, and their
// replacements.
#pragma once

#include <string>
#include <string_view>

namespace pacecar::perf {

// One sentence on a flag of perftest's that `pacecar bw` and `lat` do not take; empty: perftest has
// no such flag. `name` as written: "-R", "--rdma_cm".
std::string answer_to_perftest_flag(std::string_view name);

}  // namespace pacecar::perf
