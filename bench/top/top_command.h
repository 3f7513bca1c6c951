// `pacecar top`: NICs and flows of the running jobs, live.
#pragma once

namespace pacecar {

// argv[0] is "top". Returns the exit codes of bench/perf/exit_code.h.
int run_top(int argc, char** argv);

}  // namespace pacecar
