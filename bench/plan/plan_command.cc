// `pacecar plan`: how to divide the training of a model among unequal accelerators.
#include <fmt/core.h>
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/perf/command_line.h"
#include "bench/perf/console.h"
#include "bench/perf/exit_code.h"
#include "bench/perf/files.h"
#include "bench/perf/run_subcommand.h"
#include "bench/perf/subcommands.h"
#include "bench/plan/launch.h"
#include "bench/plan/plan_file.h"
#include "bench/plan/plan_report.h"
#include "bench/plan/search.h"
#include "bench/sim/spec_value.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

using namespace plan;
using perf::Console;

constexpr const char* kFooter = R"(Examples:
  pacecar plan bench/plan/examples/hethub.toml
  pacecar plan cluster.toml model.toml --set training.global_batch=512 --json plans.json
  pacecar plan job.toml --emit megatron
bench/plan/README.md tells the tables and keys of a file, what is measured and what assumed.
Exit codes: 0 success, 1 no plan fits the memory or the batch, 2 wrong usage.)";

struct Flags {
  std::vector<std::string> files;
  std::vector<std::string> settings;
  uint32_t best = 5;
  double tolerance_percent = 0.1;
  uint32_t nodes = SearchOptions().nodes;
  std::string json_file;
  std::string emit;
  uint32_t plan = 1;
  double scale = 0.001;
  bool quiet = false;
  bool no_color = false;
};

void add_flags(CLI::App& app, Flags& flags) {
  app.add_option("FILES", flags.files, "TOML of model, training and cluster, later ones on top");
  app.add_option("--set", flags.settings, "any key of the file, as training.global_batch=512")
      ->allow_extra_args(false);
  app.add_option("--best", flags.best, "plans that are wanted")
      ->check(perf::whole_number(1, 1000))
      ->capture_default_str();
  app.add_option("--tolerance", flags.tolerance_percent,
                 "percent by which a plan may miss the optimum; 0: search on until there is none "
                 "better")
      ->check(CLI::Range(0.0, 50.0))
      ->capture_default_str();
  app.add_option("--nodes", flags.nodes,
                 "partial splits that are looked at per shape: more, and the plan is nearer to "
                 "the optimum, or proved to be")
      ->check(perf::whole_number(1, 1'000'000'000))
      ->capture_default_str();
  perf::add_json_flag(app, flags.json_file, "write all figures of the plans");
  app.add_option("--emit", flags.emit,
                 "print how to launch a plan: megatron or torch; or sim: its traffic, for "
                 "'pacecar sim'")
      ->check(CLI::IsMember({"megatron", "torch", "sim"}));
  app.add_option("--plan", flags.plan, "which plan --emit prints, by its number")
      ->check(perf::whole_number(1, 1000))
      ->capture_default_str();
  app.add_option("--scale", flags.scale, "of the bytes that --emit sim has")
      ->check(perf::positive_number(1))
      ->capture_default_str();
  app.add_flag("--quiet", flags.quiet, "no table");
  app.add_flag("--no-color", flags.no_color, "no colours");
  app.footer(kFooter);
}

Result<Problem> problem_of(const Flags& flags) {
  SpecTable tables;
  for (const std::string& name : flags.files) {
    ASSIGN_OR_RETURN(const auto file, read_spec(name));
    merge_spec(tables, *file.table());
  }
  for (const std::string& setting : flags.settings) {
    RETURN_IF_ERROR(set_spec(tables, setting));
  }
  if (tables.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "nothing is to be planned: name a file, such as "
                "bench/plan/examples/hethub.toml");
  }
  return read_problem(tables);
}

Error nothing_fits(const SearchResult& result) {
  return {ErrorCode::kUnavailable,
          result.memory_short
              ? "no plan fits the memory: add accelerators, allow more training.tensor, smaller "
                "training.micro_batches or training.recompute = \"full\""
              : "no plan divides the batch and the model: let micro_batches divide "
                "training.global_batch, and training.tensor the heads and a host's accelerators"};
}

Result<void> emit(const Problem& problem, const Strategy& strategy, const Flags& flags,
                  CommTimes& comm) {
  Result<std::string> text;
  if (flags.emit == "megatron") text = megatron_launch(problem, strategy);
  if (flags.emit == "torch") text = torch_launch(problem, strategy);
  if (flags.emit == "sim") text = sim_experiment(problem, strategy, comm, flags.scale);
  if (!text) return tl::unexpected(text.error());
  fmt::print("{}", *text);
  return {};
}

Result<void> print(const Answer& answer, const Flags& flags, CommTimes& comm) {
  if (!flags.json_file.empty()) {
    RETURN_IF_ERROR(perf::write_json(flags.json_file, document_of(answer)));
  }
  if (!flags.emit.empty()) {
    if (flags.plan > answer.plans.size()) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("there is no plan {}: only {} were found", flags.plan, answer.plans.size()));
    }
    return emit(answer.problem, answer.plans[flags.plan - 1].strategy, flags, comm);
  }
  if (!flags.quiet && flags.json_file != perf::kStandardOutput) {
    fmt::print("{}", text_of(answer));
  }
  return {};
}

Result<void> plan_it(const Flags& flags) {
  RETURN_IF_ERROR(perf::check_writable(flags.json_file));
  ASSIGN_OR_RETURN(const auto problem, problem_of(flags));
  CommTimes comm(problem.cluster, problem.overheads);
  const SearchOptions options{
      .best = flags.best, .tolerance = flags.tolerance_percent / 100, .nodes = flags.nodes};
  const auto started = std::chrono::steady_clock::now();
  const auto found = search(problem, comm, options);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - started;
  if (found.best.empty()) return tl::unexpected(nothing_fits(found));
  std::vector<PlanReport> plans;
  for (const Strategy& each : found.best) plans.push_back(report_of(problem, each, comm));
  const bool several = problem.accelerators.size() > 1;
  return print({.problem = problem,
                .search = found,
                .plans = plans,
                .alone_tokens_per_s = several ? alone_tokens_per_s(problem, comm, options) : 0,
                .search_s = taken.count()},
               flags, comm);
}

}  // namespace

int run_plan(int argc, char** argv) {
  Flags flags;
  CLI::App app("Plans how to train a model on unequal accelerators: who does what, and how long.",
               "pacecar plan");
  add_flags(app, flags);
  const auto exit_code = [](const Error& error) {
    return error.code == ErrorCode::kUnavailable ? perf::kExitFailed : perf::kExitUsage;
  };
  return perf::run_subcommand(
      app, argc, argv, {.quiet = &flags.quiet, .no_color = &flags.no_color, .exit_code = exit_code},
      [&](const Console&) { return plan_it(flags); });
}

}  // namespace pacecar
