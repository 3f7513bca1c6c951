// `pacecar agent`: one host of `--hosts`, started there by ssh, srun or kubectl. Runs subcommands
// of this program as it is told on its standard input (agent_protocol.h), and ends with it.
#pragma once

namespace pacecar::hosts {

// argv[0] is "agent". Returns an ExitCode.
int run_agent(int argc, char** argv);

}  // namespace pacecar::hosts
