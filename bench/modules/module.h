// Modules of the program `pacecar`: shared objects with the subcommands that most users of NCCL
// never call, so that the program is small, and is built in a third of the time. A module has
// hidden copies of all libraries that it needs, and exports one function. In every
// module /proc/self/exe is `pacecar`.
#pragma once

namespace pacecar {

// Loads the module (transport/base/module_path.h) and runs the subcommand argv[0] in it. Returns
// its exit code, or kExitFailed after a sentence if the module cannot be loaded.
int run_in_module(const char* module, int argc, char** argv);

}  // namespace pacecar

// What a module exports. argv[0] is the subcommand.
extern "C" [[gnu::visibility("default")]] int pacecar_run_subcommand(int argc, char** argv);
