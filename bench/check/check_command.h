// `pacecar check-plugin`: does a net plugin do what NCCL relies on, and how fast is it?
#pragma once

namespace pacecar {

// argv[0] is "check-plugin". Returns 0: every rule holds, 1: one does not, 2: wrong usage.
int run_check_plugin(int argc, char** argv);

}  // namespace pacecar
