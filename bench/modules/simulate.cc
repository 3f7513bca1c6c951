// The module for simulations, experiments and predictions.
#include <string_view>

#include "bench/cli/subcommands.h"
#include "bench/modules/module.h"

int pacecar_run_subcommand(int argc, char** argv) {
  using namespace pacecar;
  const std::string_view name = argv[0];
  if (name == "sim") return run_sim(argc, argv);
  if (name == "ab") return run_ab(argc, argv);
  if (name == "plan") return run_plan(argc, argv);
  if (name == "predict") return run_predict(argc, argv);
  return run_switch(argc, argv);
}
