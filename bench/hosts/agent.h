// `pacecar agent`: one host of `--hosts`, started there by ssh, srun or kubectl. Runs the
// subcommands that it reads from its standard input (agent_protocol.h), and ends when that does.
#pragma once

namespace pacecar::hosts {

// argv[0] is "agent". Returns an ExitCode.
int run_agent(int argc, char** argv);

}  // namespace pacecar::hosts
