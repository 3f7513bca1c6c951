// `pacecar ab`: compares arms of an experiment, simulated or real.
#pragma once

namespace pacecar {

// argv[0] is "ab". Returns 0: passed, 1: a threshold was missed, 2: an error.
int run_ab(int argc, char** argv);

}  // namespace pacecar
