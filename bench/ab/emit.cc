#include "bench/ab/emit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "bench/ab/provenance.h"
#include "bench/cli/build_info.h"
#include "bench/cli/command_line.h"
#include "transport/base/return_if_error.h"

namespace pacecar::ab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSlurmFile = "job_array.sh";
constexpr const char* kParallelFile = "commands.sh";
// Slurm refuses indices from MaxArraySize on, by default 1,001.
constexpr size_t kArraySize = 1000;

// "pacecar ab plan.toml --run INDEX --out FOLDER/jobs/INDEX ...". With --resume a job that is
// started again does not repeat a finished run.
std::string job_command(const EmitPlan& plan, const ResultsFolder& folder,
                        const std::string& index) {
  std::string command = fmt::format("{} ab {} --run {} --out {}/{} --resume --quiet",
                                    cli::shell_quoted(plan.program), cli::shell_quoted(plan.plan),
                                    index, cli::shell_quoted(folder.file("jobs")), index);
  if (plan.seed) command += fmt::format(" --seed {}", *plan.seed);
  return command;
}

std::string merge_command(const EmitPlan& plan, const ResultsFolder& folder) {
  return fmt::format("{} ab merge --out {} {}/*", cli::shell_quoted(plan.program),
                     cli::shell_quoted(folder.file("merged")),
                     cli::shell_quoted(folder.file("jobs")));
}

// A name that a scheduler takes without quotes.
std::string plain_name(std::string name) {
  std::replace_if(
      name.begin(), name.end(),
      [](char letter) { return std::isalnum(static_cast<unsigned char>(letter)) == 0; }, '-');
  return name;
}

// The words of a command line without those that name the results' folder or are about old results.
std::vector<std::string> flags_to_keep(const std::vector<std::string>& argv) {
  std::vector<std::string> kept;
  bool command = false;  // the words behind "--" are another program's
  for (size_t i = 1; i < argv.size(); ++i) {
    command |= argv[i] == "--";
    const bool dropped =
        argv[i] == "--force" || argv[i] == "--resume" || argv[i].starts_with("--out=");
    if (!command && argv[i] == "--out") {
      ++i;
    } else if (command || !dropped) {
      kept.push_back(argv[i]);
    }
  }
  return kept;
}

std::string exports() {
  std::string lines;
  const nlohmann::json settings = provenance("")["environment"];
  for (const auto& [name, value] : settings.items()) {
    lines += fmt::format("export {}={}\n", name, cli::shell_quoted(value.get<std::string>()));
  }
  return lines;
}

}  // namespace

std::string index_ranges(const std::vector<size_t>& runs) {
  std::string text;
  for (size_t begin = 0; begin < runs.size();) {
    size_t end = begin;
    while (end + 1 < runs.size() && runs[end + 1] == runs[end] + 1) ++end;
    if (!text.empty()) text += ",";
    text += end == begin ? fmt::format("{}", runs[begin])
                         : fmt::format("{}-{}", runs[begin], runs[end]);
    begin = end + 1;
  }
  return text;
}

Result<std::string> emit_slurm(const EmitPlan& plan, const ResultsFolder& folder) {
  const std::string limit = plan.jobs ? fmt::format("%{}", *plan.jobs) : "";
  const std::string script = fmt::format(
      "#!/bin/bash\n"
      "#SBATCH --job-name=pacecar-{}\n"
      "#SBATCH --ntasks=1\n"
      "#SBATCH --cpus-per-task=1\n"
      "# One run per array task: that of its index, counted from $1. When all are done: {}\n"
      "set -eu\n"
      "run=$(($1 + SLURM_ARRAY_TASK_ID))\n"
      "exec {}\n",
      plain_name(plan.name), merge_command(plan, folder), job_command(plan, folder, "\"$run\""));
  RETURN_IF_ERROR(folder.write(kSlurmFile, script));
  std::string commands;
  for (auto next = plan.runs.begin(); next != plan.runs.end();) {
    const size_t first = *next / kArraySize * kArraySize;
    std::vector<size_t> indexes;
    for (; next != plan.runs.end() && *next < first + kArraySize; ++next) {
      indexes.push_back(*next - first);
    }
    commands += fmt::format("sbatch --array={}{} {} {}\n", index_ranges(indexes), limit,
                            cli::shell_quoted(folder.file(kSlurmFile)), first);
  }
  return fmt::format("{}# and when all {} jobs are done:\n{}\n", commands, plan.runs.size(),
                     merge_command(plan, folder));
}

Result<std::string> emit_parallel(const EmitPlan& plan, const ResultsFolder& folder) {
  std::string commands;
  for (const size_t run : plan.runs) {
    commands += job_command(plan, folder, fmt::format("{}", run)) + "\n";
  }
  RETURN_IF_ERROR(folder.write(kParallelFile, commands));
  const std::string jobs = plan.jobs ? fmt::format(" --jobs {}", *plan.jobs) : "";
  return fmt::format("parallel{} < {}\n{}\n", jobs, cli::shell_quoted(folder.file(kParallelFile)),
                     merge_command(plan, folder));
}

Result<void> write_repro(const ResultsFolder& results, const std::vector<std::string>& argv,
                         const std::string& folder, const std::string& plan) {
  std::string script = fmt::format(
      "#!/bin/sh\n"
      "# Runs this experiment again, into the folder that is given or a new one. These results "
      "are\n"
      "# of pacecar {}, commit {}.\n"
      "# shellcheck disable=SC2016  # variables of the command's own\n"
      "set -eu\n"
      "pacecar=${{PACECAR:-pacecar}}\n"
      "command -v \"$pacecar\" >/dev/null || {{\n"
      "  echo \"error: there is no program $pacecar: put pacecar on PATH, or its path into "
      "PACECAR\" >&2\n"
      "  exit 2\n"
      "}}\n"
      "results=$(cd \"$(dirname \"$0\")\" && pwd)\n",
      build_version(), build_commit());
  if (!plan.empty()) {
    const std::string path = cli::shell_quoted(fs::absolute(plan).string());
    script += fmt::format(
        "cmp -s {} \"$results/plan.toml\" ||\n"
        "  echo 'warning: the plan has changed since; plan.toml is what it was' >&2\n",
        path);
  }
  script += fmt::format("cd {}\n{}exec \"$pacecar\" ab --out \"${{1:-$results.again}}\"",
                        cli::shell_quoted(folder), exports());
  script += " " + cli::shell_line(flags_to_keep(argv)) + "\n";
  RETURN_IF_ERROR(results.write("repro.sh", script));
  using Perms = fs::perms;
  fs::permissions(results.file("repro.sh"),
                  Perms::owner_exec | Perms::group_exec | Perms::others_exec,
                  fs::perm_options::add);
  return {};
}

}  // namespace pacecar::ab
