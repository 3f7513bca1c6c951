#include "bench/ab/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
#include <numeric>

#include "bench/ab/plan_parts.h"
#include "bench/cli/command_line.h"
#include "bench/cli/files.h"
#include "bench/sim/metrics.h"
#include "bench/sim/spec_file.h"
#include "bench/sim/spec_reader.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"

namespace pacecar::ab {
namespace {

constexpr uint64_t kMaxSeeds = 100'000;
constexpr uint64_t kMaxRounds = 100'000;
constexpr uint64_t kDefaultRounds = 10;
constexpr const char* kDefaultShown[] = {"finish_us",    "fct_p50_us",      "fct_p99_us",
                                         "goodput_gbps", "queue_max_bytes", "retransmissions"};

void set_rounds(Experiment& experiment, size_t rounds) {
  experiment.kind = Experiment::Kind::kPrograms;
  experiment.seeds.resize(rounds);
  std::iota(experiment.seeds.begin(), experiment.seeds.end(), 1);
}

// seeds = 5 means 1 .. 5; a list names them.
void read_seeds(SpecReader& reader, Experiment& experiment) {
  const SpecValue* seeds = reader.value("seeds");
  if (seeds != nullptr && seeds->list() != nullptr) {
    experiment.seeds = reader.wholes<uint64_t>("seeds", std::numeric_limits<int64_t>::max());
    if (experiment.seeds.empty()) reader.complain("seeds", "is empty: name one at least");
    std::vector<uint64_t> sorted = experiment.seeds;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
      reader.complain("seeds", "names one twice: every run needs its own");
    }
    return;
  }
  experiment.seeds.resize(reader.whole("seeds", 1, 1, kMaxSeeds));
  std::iota(experiment.seeds.begin(), experiment.seeds.end(), 1);
}

// The keys that only plans of simulations have. Returns the tables of all runs.
SpecTable read_simulations(SpecReader& top, Experiment& experiment) {
  read_seeds(top, experiment);
  if (!top.has("metrics")) {
    experiment.shown.assign(std::begin(kDefaultShown), std::end(kDefaultShown));
  }
  for (const std::string& name : experiment.shown) {
    if (const auto metric = find_metric(name); !metric) {
      top.complain("metrics", "is wrong: " + metric.error().message);
    }
  }
  SpecTable common;
  for (const std::string_view table : kRunTables) {
    if (const SpecValue* value = top.value(table)) common.set(std::string(table), *value);
  }
  return common;
}

// The keys that only plans of programs have. Returns the command of all runs.
Command read_programs(SpecReader& top, Plan& plan) {
  Command command{read_texts(top, "command"), {}};
  if (command.words.empty()) top.complain("command", "is empty: name the program to run");
  set_rounds(plan.experiment, top.whole("rounds", kDefaultRounds, 1, kMaxRounds));
  if (plan.experiment.description.empty()) {
    plan.experiment.description = cli::shell_line(command.words);
  }
  plan.warmups = top.whole("warm_up", 0, 0, kMaxRounds);
  plan.timeout = top.duration("timeout", Duration::max());
  plan.order_seed = top.whole("seed", 1);
  return command;
}

// Adds what a layer sets to a command.
void apply(const SpecTable& keys, Command& command) {
  if (const SpecValue* environment = keys.find("environment")) {
    for (const auto& [name, text] : environment->table()->entries()) {
      command.environment.push_back(name + "=" + plain_text(text));
    }
  }
  if (const SpecValue* flags = keys.find("flags")) {
    for (const SpecValue& flag : *flags->list()) command.words.push_back(plain_text(flag));
  }
}

// A metric of one job ("finish_us@victim") is there where the workload has several.
bool has_metric(const RunSpec& spec, std::string_view name) {
  const size_t at = name.find('@');
  if (at == std::string_view::npos) return true;
  const auto& jobs = spec.workload.jobs;
  return jobs.size() > 1 &&
         std::ranges::find(jobs, name.substr(at + 1), &WorkloadJob::name) != jobs.end();
}

tl::unexpected<Error> no_such_job(const std::string& file, const std::string& metric,
                                  const RunSpec& spec) {
  std::vector<std::string_view> names;
  for (const WorkloadJob& job : spec.workload.jobs) names.push_back(job.name);
  return invalid(
      "{}: '{}' asks for one of several jobs, and {} has {}: name one of these in a workload of "
      "[[workload.job]], or leave out '@'",
      file, metric, spec.name, fmt::join(names, ", "));
}

// Each cell can run and has the metrics that are asked for.
Result<void> check_cells(const Plan& plan, const std::string& file) {
  const Experiment& experiment = plan.experiment;
  std::vector<std::string> missing = experiment.shown;
  RunSpec last;
  for (size_t cell = 0; cell < experiment.cells.size(); ++cell) {
    ASSIGN_OR_RETURN(auto spec, run_spec(plan, cell * experiment.seeds.size()));
    for (const Threshold& threshold : experiment.thresholds) {
      if (threshold.cell == cell && !has_metric(spec, threshold.metric)) {
        return no_such_job(file, threshold.metric, spec);
      }
    }
    std::erase_if(missing, [&](const std::string& name) { return has_metric(spec, name); });
    last = std::move(spec);
  }
  if (missing.empty()) return {};
  return no_such_job(file, missing.front(), last);
}

// Variables of an environment, split as a shell does.
Result<std::vector<std::string>> split_environment(const std::string& text) {
  const auto words = cli::shell_words(text);
  const bool sound = words && std::ranges::all_of(*words, [](const std::string& word) {
    const size_t equals = word.find('=');
    return equals != 0 && equals != std::string::npos;
  });
  if (sound) return words;
  return invalid("'{}' is no list of variables: write NAME=value NAME='two words'", text);
}

}  // namespace

Result<Plan> parse_plan(std::string_view text, const std::string& name) {
  ASSIGN_OR_RETURN(const auto file, parse_spec(text, name));
  Plan plan{.experiment = {}, .text = std::string(text)};
  Experiment& experiment = plan.experiment;
  SpecReader top(*file.table(), "top level", file.place);
  experiment.name = top.text("name", std::filesystem::path(name).stem());
  experiment.description = top.text("description", "");
  experiment.shown = read_texts(top, "metrics");
  SpecTable common_spec;
  Command common_command;
  if (top.has("command")) {
    common_command = read_programs(top, plan);
  } else {
    common_spec = read_simulations(top, experiment);
  }
  ASSIGN_OR_RETURN(const auto layers, read_parts(file, top, experiment));
  for (const Cell& cell : experiment.cells) {
    if (plan.of_programs()) {
      Command& command = plan.commands.emplace_back(common_command);
      for (const SpecTable* keys : layers.of(cell)) apply(*keys, command);
    } else {
      SpecTable& spec = plan.specs.emplace_back(common_spec);
      for (const SpecTable* keys : layers.of(cell)) merge_spec(spec, *keys);
    }
  }
  for (size_t arm = 0; plan.of_programs() && arm < layers.arms.size(); ++arm) {
    Command settings;
    apply(layers.arms[arm].keys, settings);
    std::ranges::copy(settings.words, std::back_inserter(settings.environment));
    experiment.arms[arm].settings = cli::shell_line(settings.environment);
  }
  return plan;
}

Result<Plan> read_plan(const std::string& path, std::optional<uint64_t> seed) {
  ASSIGN_OR_RETURN(const auto text, cli::read_text(path));
  ASSIGN_OR_RETURN(auto plan, parse_plan(text, path));
  plan.base_dir = std::filesystem::path(path).parent_path();
  if (plan.of_programs()) {
    plan.order_seed = seed.value_or(plan.order_seed);
    return plan;
  }
  if (seed) plan.experiment.seeds = {*seed};
  RETURN_IF_ERROR(check_cells(plan, path));
  return plan;
}

Plan program_plan(const std::vector<std::string>& command, size_t rounds) {
  Plan plan;
  plan.experiment.name = std::filesystem::path(command[0]).filename();
  plan.experiment.description = cli::shell_line(command);
  set_rounds(plan.experiment, rounds);
  return plan;
}

Result<void> add_arm(Plan& plan, const std::vector<std::string>& command, const std::string& name,
                     const std::string& environment) {
  ASSIGN_OR_RETURN(const auto variables, split_environment(environment));
  Experiment& experiment = plan.experiment;
  if (std::ranges::find(experiment.arms, name, &Arm::name) != experiment.arms.end()) {
    return invalid("there are two arms named '{}': rename one", name);
  }
  experiment.cells.push_back({experiment.arms.size(), {}});
  experiment.arms.push_back({name, cli::shell_line(variables)});
  plan.commands.push_back({command, variables});
  return {};
}

Result<RunSpec> run_spec(const Plan& plan, size_t run) {
  const Experiment& experiment = plan.experiment;
  const size_t cell = run / experiment.seeds.size();
  auto spec = make_run_spec(plan.specs[cell], plan.base_dir, experiment.seed_of(run));
  if (spec && (!spec->trace.empty() || !spec->pcap.empty())) {
    return invalid(
        "{}: [run] trace and pcap name one file, which all runs would write: leave them out, and "
        "trace one run with 'pacecar sim'",
        plan.specs[cell].find("run")->place.text());
  }
  if (spec) {
    spec->name = fmt::format("{}: {}, seed {}", experiment.name,
                             cell_text(experiment, experiment.cells[cell]), spec->seed);
  }
  return spec;
}

}  // namespace pacecar::ab
