// A plan of `pacecar ab`, of simulations or of programs, of any bytes: no crash, and each cell of
// an accepted plan has its spec and its arm.
#include "bench/ab/plan.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "transport/base/check.h"

namespace pacecar::plan_fuzz {

FUZZ_TARGET(plan) {
  const std::string_view text = fuzz::Input(data, size).text();
  const auto plan = ab::parse_plan(text, "fuzz.toml");
  if (!plan) return 0;
  const ab::Experiment& experiment = plan->experiment;
  PACECAR_CHECK(plan->specs.size() + plan->commands.size() == experiment.cells.size());
  for (const ab::Cell& cell : experiment.cells) {
    static_cast<void>(ab::cell_text(experiment, cell));
    PACECAR_CHECK(cell.arm < experiment.arms.size());
  }
  return 0;
}

}  // namespace pacecar::plan_fuzz
