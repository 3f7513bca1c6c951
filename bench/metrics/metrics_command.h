// `pacecar metrics`: what all Pacecar processes of this host count, for Prometheus.
#pragma once

namespace pacecar {

// argv[0] is "metrics". Returns the exit codes of bench/perf/exit_code.h.
int run_metrics(int argc, char** argv);

}  // namespace pacecar
