// The subcommands of `pacecar` that look at real hosts: one file each. To add one, write its file,
// declare it here and add its line to the table in bench/main.cc.
#pragma once

namespace pacecar::perf {

// argv[0] is the subcommand's own name. Returns an ExitCode.
int run_bw(int argc, char** argv);
int run_lat(int argc, char** argv);
int run_info(int argc, char** argv);
int run_preflight(int argc, char** argv);

}  // namespace pacecar::perf
