// The subcommands of `pacecar`: one file each. To add one, write its file, declare it here, and add
// its line to the table in bench/main.cc and to its module in bench/modules. argv[0] is the
// subcommand's own name. They return an ExitCode, or what a comment says here.
#pragma once

namespace pacecar {

// 0: passed, 1: a threshold was missed, 2: an error
int run_ab(int argc, char** argv);
// 0: every rule holds, 1: one does not, 2: wrong usage
int run_check_plugin(int argc, char** argv);
// 0: nothing is wrong, 1: something is, 2: wrong usage, or there is nothing to look at
int run_doctor(int argc, char** argv);
int run_info(int argc, char** argv);
int run_metrics(int argc, char** argv);
int run_plan(int argc, char** argv);  // 0, 1 where no plan fits, 2 for wrong usage
// Does not return if it can execute the program.
int run_program(int argc, char** argv);
int run_predict(int argc, char** argv);
int run_report(int argc, char** argv);
int run_sim(int argc, char** argv);  // 0 when the run ended, 2 for everything else
int run_switch(int argc, char** argv);
int run_top(int argc, char** argv);

}  // namespace pacecar

namespace pacecar::hosts {

// Between all pairs of the hosts that --hosts names.
int run_bw(int argc, char** argv);
int run_lat(int argc, char** argv);
int run_preflight(int argc, char** argv);
int run_agent(int argc, char** argv);

}  // namespace pacecar::hosts
