#include "bench/ab/runner.h"

#include <dlfcn.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <openssl/sha.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <system_error>

#include "bench/ab/output_parser.h"
#include "bench/ab/process.h"
#include "bench/ab/report_data.h"
#include "bench/cli/build_info.h"
#include "bench/cli/child.h"
#include "bench/cli/command_line.h"
#include "bench/cli/interrupt.h"
#include "bench/sim/result_json.h"
#include "bench/sim/run.h"
#include "bench/sim/summary.h"
#include "transport/base/invalid.h"
#include "transport/base/prng.h"
#include "transport/base/return_if_error.h"

namespace pacecar::ab {
namespace {

// Lines of a failed run's output in its error.
constexpr size_t kShownLines = 3;
constexpr size_t kCommandLines = 5;
constexpr const char* kWallTime = "wall_s";
// How to go on after an interrupt.
constexpr const char* kKept = ": what was measured is in runs.jsonl";
constexpr const char* kGoOn = ": run it again with --resume to continue";

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(": ");
    const bool named = line.starts_with("model name") || line.starts_with("Model");
    if (named && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

nlohmann::json settings() {
  nlohmann::json result = nlohmann::json::object();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with("PACECAR_") && !text.starts_with("NCCL_")) continue;
    const size_t equals = text.find('=');
    result[std::string(text.substr(0, equals))] = text.substr(equals + 1);
  }
  return result;
}

// {version, commit, date, kernel, host, cpu, cpus, compiler, command_line, environment}; of the
// environment only PACECAR_* and NCCL_*.
nlohmann::json provenance(const std::string& command_line) {
  utsname system = {};
  uname(&system);
  return {{"version", build_version()},
          {"commit", build_commit()},
          {"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
          {"kernel", fmt::format("{} {}", system.sysname, system.release)},
          {"host", system.nodename},
          {"cpu", cpu_model()},
          {"cpus", sysconf(_SC_NPROCESSORS_ONLN)},
          {"compiler", build_compiler()},
          {"command_line", command_line},
          {"environment", settings()}};
}

// Steps are child processes; what they are, and what is made of their end, is the derived class'.
class Runner {
 public:
  Runner(const Plan& plan, const ResultsFolder& folder, const std::string& command_line)
      : plan_(plan), folder_(folder), provenance_(provenance(command_line)) {}
  virtual ~Runner() = default;

 protected:
  // `all` steps, at most `jobs` at once.
  Result<void> run_steps(size_t all, size_t jobs, const RunProgressSink& progress) {
    Processes processes;
    size_t next = 0;
    for (size_t done = 0; done < all;) {
      for (; next < all && processes.running() < jobs; ++next) {
        ASSIGN_OR_RETURN(auto child, start(next));
        processes.add(next, std::move(child), plan_.timeout);
      }
      const auto ended = processes.wait();
      if (cli::Interrupt::asked()) {
        return fail(ErrorCode::kUnavailable, fmt::format("interrupted after {} of {} runs{}", done,
                                                         all, plan_.of_programs() ? kKept : kGoOn));
      }
      if (ended) {
        ++done;
        RETURN_IF_ERROR(finish(ended->first, ended->second));
      }
      progress(done, all);
    }
    return {};
  }

  virtual Result<cli::Child> start(size_t step) = 0;
  virtual Result<void> finish(size_t step, const Outcome& outcome) = 0;

  RunRecord record_of_run(size_t run) const {
    RunRecord record = record_of(plan_.experiment, run);
    record.provenance = provenance_;
    return record;
  }
  Result<void> keep(RunRecord record) {
    records_.push_back(std::move(record));
    return folder_.append(records_.back());
  }
  Results results(Experiment experiment) {
    std::ranges::sort(records_, {}, &RunRecord::index);
    return {std::move(experiment), std::move(records_)};
  }

  const Plan& plan_;
  const ResultsFolder& folder_;
  const nlohmann::json provenance_;
  std::vector<RunRecord> records_;
};

// The commit; if it does not tell which code simulates, also the time at which that was built.
std::string program_identity() {
  std::string identity(build_commit());
  Dl_info own{};
  if (!identity.ends_with("-dirty") && identity != "unknown") return identity;
  if (dladdr(reinterpret_cast<const void*>(&program_identity), &own) == 0) return identity;
  std::error_code unknown;
  const auto made = std::filesystem::last_write_time(own.dli_fname, unknown);
  return fmt::format("{} {}", identity, made.time_since_epoch().count());
}

// Identifies a run, as 16 hex digits: a hash of the spec's tables, the topology and workload that
// were made of them (and of the files that they name), the seed, and the program.
std::string run_hash(const SpecTable& tables, const RunSpec& spec) {
  const Topology& topology = spec.topology;
  const Workload& workload = spec.workload;
  std::string text =
      fmt::format("{} {} {} {} {} {}", program_identity(), to_text(SpecValue{tables, {}}),
                  spec.seed, topology.hosts, topology.processes, topology.switches);
  for (const Cable& cable : topology.cables) {
    text += fmt::format(";{} {} {} {}", cable.a, cable.b, cable.rate.bps(), cable.delay.ns());
  }
  for (const WorkloadFlow& flow : workload.flows) {
    text += fmt::format(";{} {} {} {} {} {} {} {}", flow.source, flow.destination, flow.bytes,
                        flow.start.ns(), flow.trigger, flow.job, fmt::join(flow.on_sent, ","),
                        fmt::join(flow.on_received, ","));
  }
  for (const WorkloadTrigger& trigger : workload.triggers) {
    text += fmt::format(";{} {}", static_cast<int>(trigger.kind), trigger.count);
  }
  for (const WorkloadJob& job : workload.jobs) text += ";" + job.congestion_control;
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return fmt::format("{:02x}", fmt::join(std::span(digest).first(8), ""));
}

// In the child: prints the finished record on stdout, errors on stderr.
int simulate(const Plan& plan, RunRecord record, const ResultsFolder& folder) {
  const auto spec = run_spec(plan, record.index);
  const auto result = spec ? run_experiment(*spec) : tl::unexpected(spec.error());
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    return 1;
  }
  std::ofstream detail(folder.file(record.detail));
  detail << run_detail(*result).dump() << '\n';
  if (!detail.flush()) {
    std::fprintf(stderr, "cannot write %s: make room, or choose another folder with --out\n",
                 folder.file(record.detail).c_str());
    return 1;
  }
  record.ok = true;
  record.error = undone_flows(*spec, *result);
  record.metrics = run_metrics(*result);
  record.counters = counters_json(*result);
  std::fputs(to_line(record).c_str(), stdout);
  return 0;
}

RunRecord record_of_outcome(RunRecord record, const Outcome& outcome) {
  if (outcome.ok()) {
    if (auto printed = record_from_line(outcome.output)) {
      record = std::move(*printed);
    } else {
      record.error = printed.error().message;
    }
  } else {
    const std::string lines = cli::last_lines(outcome.errors, kShownLines);
    record.error = fmt::format("the run {}{}{}", outcome.cause(), lines.empty() ? "" : ": ", lines);
    std::replace(record.error.begin(), record.error.end(), '\n', ' ');
    record.detail.clear();
  }
  record.wall_seconds = outcome.seconds;
  return record;
}

class SimulationRunner final : public Runner {
 public:
  using Runner::Runner;

  Result<Results> run(const std::vector<size_t>& runs, const RunSettings& settings,
                      const RunProgressSink& progress) {
    for (size_t run = 0; run < plan_.experiment.runs(); ++run) {
      const bool wanted = std::binary_search(runs.begin(), runs.end(), run);
      RETURN_IF_ERROR(add(run, wanted, settings.finished));
    }
    RETURN_IF_ERROR(folder_.write_records(records_));
    RETURN_IF_ERROR(run_steps(waiting_.size(), settings.jobs, progress));
    return results(plan_.experiment);
  }

 private:
  // Takes the run's record from `finished` if it is there; else queues the run if it is wanted.
  Result<void> add(size_t run, bool wanted, const std::vector<RunRecord>& finished) {
    if (!wanted && finished.empty()) return {};
    ASSIGN_OR_RETURN(const auto spec, run_spec(plan_, run));
    RunRecord record = record_of_run(run);
    record.spec_hash = run_hash(plan_.specs[run / plan_.experiment.seeds.size()], spec);
    record.detail = ResultsFolder::detail_name(record);
    // The index may differ: a plan that has grown numbers its runs differently.
    const auto same = std::ranges::find_if(finished, [&](const RunRecord& other) {
      return other.ok && other.arm == record.arm && other.factors == record.factors &&
             other.seed == record.seed && other.spec_hash == record.spec_hash;
    });
    if (same != finished.end()) {
      records_.push_back(*same);
      records_.back().index = run;
    } else if (wanted) {
      waiting_.push_back(std::move(record));
    }
    return {};
  }

  Result<cli::Child> start(size_t step) override {
    return cli::Child::run([this, step] { return simulate(plan_, waiting_[step], folder_); });
  }
  Result<void> finish(size_t step, const Outcome& outcome) override {
    return keep(record_of_outcome(std::move(waiting_[step]), outcome));
  }

  std::vector<RunRecord> waiting_;
};

class ProgramRunner final : public Runner {
 public:
  ProgramRunner(const Plan& plan, const ResultsFolder& folder, const std::string& command_line)
      : Runner(plan, folder, command_line), experiment_(plan.experiment) {}

  Result<Results> run(const std::vector<size_t>& runs, const RunProgressSink& progress) {
    const size_t rounds = experiment_.seeds.size();
    for (const ProgramStep& step : program_order(experiment_.cells, rounds, plan_.order_seed)) {
      const size_t run = step.cell * rounds + step.block;
      if (std::binary_search(runs.begin(), runs.end(), run)) runs_.push_back(run);
    }
    for (const size_t run : runs_) {
      if (std::ranges::find(cells_, run / rounds) == cells_.end()) cells_.push_back(run / rounds);
    }
    warmups_ = plan_.warmups * cells_.size();
    unseen_ = experiment_.shown;
    RETURN_IF_ERROR(run_steps(warmups_ + runs_.size(), 1, progress));
    return results(std::move(experiment_));
  }

 private:
  size_t cell_of(size_t step) const {
    return step < warmups_ ? cells_[step % cells_.size()]
                           : runs_[step - warmups_] / experiment_.seeds.size();
  }

  Result<cli::Child> start(size_t step) override {
    const Command& command = plan_.commands[cell_of(step)];
    return cli::Child::execute(command.words, {.environment = command.environment});
  }

  Result<void> finish(size_t step, const Outcome& outcome) override {
    if (!outcome.ok()) return failed(plan_.commands[cell_of(step)], outcome);
    if (step < warmups_) return {};
    ParsedOutput parsed = parse_output(outcome.output);
    if (parsed.headline.empty() && outcome.output.starts_with('{')) {
      return invalid(
          "the command prints JSON that is no {{\"metrics\": {{NAME: NUMBER}}}}: let it print its "
          "table (without --json)");
    }
    parsed.metrics[kWallTime] = outcome.seconds;
    if (parsed.headline.empty()) parsed.headline.push_back(kWallTime);
    RETURN_IF_ERROR(choose_metrics(parsed, cell_of(step)));
    RunRecord record = record_of_run(runs_[step - warmups_]);
    record.ok = true;
    record.metrics = std::move(parsed.metrics);
    record.wall_seconds = outcome.seconds;
    RETURN_IF_ERROR(folder_.write(fmt::format("runs/{:06}.txt", record.index), outcome.output));
    return keep(std::move(record));
  }

  static tl::unexpected<Error> failed(const Command& command, const Outcome& outcome) {
    const std::string lines =
        cli::last_lines(outcome.output + "\n" + outcome.errors, kCommandLines);
    return fail(ErrorCode::kSystem,
                fmt::format("{} {} {}; its last lines:\n{}", cli::shell_line(command.environment),
                            cli::shell_line(command.words), outcome.cause(),
                            lines.empty() ? "(it printed nothing)" : lines));
  }

  // Without names, the first run's output decides which metrics are shown. Otherwise each must be
  // in the output of at least one cell, and the metric of a threshold in each of its cells.
  Result<void> choose_metrics(const ParsedOutput& parsed, size_t cell) {
    if (experiment_.shown.empty()) experiment_.shown = parsed.headline;
    std::erase_if(unseen_, [&](const std::string& name) { return parsed.metrics.contains(name); });
    std::vector<std::string> needed;
    if (records_.size() + 1 >= cells_.size()) needed = unseen_;
    for (const Threshold& threshold : experiment_.thresholds) {
      if (threshold.cell == cell) needed.push_back(threshold.metric);
    }
    const auto missing = std::ranges::find_if(
        needed, [&](const std::string& name) { return !parsed.metrics.contains(name); });
    if (missing == needed.end()) return {};
    std::vector<std::string> names;
    for (const auto& [name, value] : parsed.metrics) names.push_back(name);
    return invalid("the command's output has no '{}': choose --metric among {}", *missing,
                   fmt::join(names, ", "));
  }

  Experiment experiment_;
  std::vector<size_t> runs_;         // in their order
  std::vector<size_t> cells_;        // that have a run
  std::vector<std::string> unseen_;  // shown metrics that no output has had yet
  size_t warmups_ = 0;               // the first steps
};

template <typename T>
void shuffle(std::span<T> values, Prng& prng) {
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[prng.below(i)]);
}

}  // namespace

std::vector<ProgramStep> program_order(const std::vector<Cell>& cells, size_t blocks,
                                       uint64_t seed) {
  Prng prng(seed);
  std::map<std::vector<size_t>, std::vector<size_t>> arms_of;  // cells, by their factor values
  for (size_t cell = 0; cell < cells.size(); ++cell) arms_of[cells[cell].values].push_back(cell);
  std::vector<std::vector<size_t>> groups;
  for (auto& [values, arms] : arms_of) groups.push_back(std::move(arms));
  std::vector<ProgramStep> steps;
  for (size_t block = 0; block < blocks; ++block) {
    shuffle(std::span(groups), prng);
    for (std::vector<size_t>& group : groups) {
      shuffle(std::span(group), prng);
      for (const size_t cell : group) steps.push_back({block, cell});
    }
  }
  return steps;
}

Result<Results> run_plan(const Plan& plan, const std::vector<size_t>& runs,
                         const RunSettings& settings, const ResultsFolder& folder,
                         const RunProgressSink& progress) {
  if (plan.of_programs()) {
    return ProgramRunner(plan, folder, settings.command_line).run(runs, progress);
  }
  return SimulationRunner(plan, folder, settings.command_line).run(runs, settings, progress);
}

}  // namespace pacecar::ab
