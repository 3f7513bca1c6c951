// `pacecar run`: runs a program over Pacecar's NICs.
#pragma once

namespace pacecar {

// argv[0] is "run". Returns the exit codes of bench/perf/exit_code.h, or does not return: the
// program takes this one's place.
int run_program(int argc, char** argv);

}  // namespace pacecar
