// `pacecar plan`: how to divide the training of a model among unequal accelerators.
#pragma once

namespace pacecar {

// argv[0] is the subcommand's own name. Returns 0, 1 where no plan fits, 2 for wrong usage.
int run_plan(int argc, char** argv);

}  // namespace pacecar
