// `pacecar doctor`: which rank, NIC and path of the running job is the slowest, and why?
#pragma once

namespace pacecar {

// argv[0] is "doctor". Returns 0: nothing is wrong, 1: something is, 2: wrong usage, or there is
// nothing to look at.
int run_doctor(int argc, char** argv);

}  // namespace pacecar
