// `pacecar bw`, `lat` and `preflight` with --hosts; without it they are bench/perf's.
#pragma once

namespace pacecar::hosts {

// argv[0] is the subcommand. Each returns an ExitCode.
int run_bw(int argc, char** argv);
int run_lat(int argc, char** argv);
int run_preflight(int argc, char** argv);

}  // namespace pacecar::hosts
