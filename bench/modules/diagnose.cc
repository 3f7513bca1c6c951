// The module for clusters and running jobs.
#include <string_view>

#include "bench/cli/subcommands.h"
#include "bench/modules/module.h"

int pacecar_run_subcommand(int argc, char** argv) {
  using namespace pacecar;
  const std::string_view name = argv[0];
  if (name == "bw") return hosts::run_bw(argc, argv);
  if (name == "lat") return hosts::run_lat(argc, argv);
  if (name == "preflight") return hosts::run_preflight(argc, argv);
  if (name == "agent") return hosts::run_agent(argc, argv);
  if (name == "doctor") return run_doctor(argc, argv);
  if (name == "report") return run_report(argc, argv);
  if (name == "top") return run_top(argc, argv);
  if (name == "metrics") return run_metrics(argc, argv);
  if (name == "check-plugin") return run_check_plugin(argc, argv);
  return run_program(argc, argv);
}
