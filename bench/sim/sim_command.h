// `pacecar sim`: one run in a simulated fabric, from a TOML file or from flags alone.
#pragma once

namespace pacecar {

// argv[0] is the subcommand's own name. Returns 0 when the run ended, 2 for everything else.
int run_sim(int argc, char** argv);

}  // namespace pacecar
