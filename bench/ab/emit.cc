#include "bench/ab/emit.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/perf/command_line.h"
#include "transport/base/return_if_error.h"

namespace pacecar::ab {
namespace {

constexpr const char* kSlurmFile = "job_array.sh";
constexpr const char* kParallelFile = "commands.sh";
// Slurm refuses indices from MaxArraySize on, by default 1,001.
constexpr size_t kArraySize = 1000;

// "pacecar ab plan.toml --run INDEX --out FOLDER/jobs/INDEX ...". With --resume a job that is
// started again does not repeat a finished run.
std::string job_command(const EmitPlan& plan, const ResultsFolder& folder,
                        const std::string& index) {
  std::string command = fmt::format("{} ab {} --run {} --out {}/{} --resume --quiet",
                                    perf::shell_quoted(plan.program), perf::shell_quoted(plan.plan),
                                    index, perf::shell_quoted(folder.file("jobs")), index);
  if (plan.seed) command += fmt::format(" --seed {}", *plan.seed);
  return command;
}

std::string merge_command(const EmitPlan& plan, const ResultsFolder& folder) {
  return fmt::format("{} ab merge --out {} {}/*", perf::shell_quoted(plan.program),
                     perf::shell_quoted(folder.file("merged")),
                     perf::shell_quoted(folder.file("jobs")));
}

// A name that a scheduler takes without quotes.
std::string plain_name(std::string name) {
  std::replace_if(
      name.begin(), name.end(),
      [](char letter) { return std::isalnum(static_cast<unsigned char>(letter)) == 0; }, '-');
  return name;
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

std::vector<SlurmArray> slurm_arrays(const std::vector<size_t>& runs) {
  std::vector<SlurmArray> arrays;
  for (auto next = runs.begin(); next != runs.end();) {
    const size_t first = *next / kArraySize * kArraySize;
    std::vector<size_t> indexes;
    for (; next != runs.end() && *next < first + kArraySize; ++next) {
      indexes.push_back(*next - first);
    }
    arrays.push_back({first, index_ranges(indexes)});
  }
  return arrays;
}

Result<std::string> emit_slurm(const EmitPlan& plan, const std::string& name,
                               const ResultsFolder& folder) {
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
      plain_name(name), merge_command(plan, folder), job_command(plan, folder, "\"$run\""));
  RETURN_IF_ERROR(folder.write(kSlurmFile, script));
  std::string commands;
  for (const auto& [first, indexes] : slurm_arrays(plan.runs)) {
    commands += fmt::format("sbatch --array={}{} {} {}\n", indexes, limit,
                            perf::shell_quoted(folder.file(kSlurmFile)), first);
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
  return fmt::format("parallel{} < {}\n{}\n", jobs, perf::shell_quoted(folder.file(kParallelFile)),
                     merge_command(plan, folder));
}

}  // namespace pacecar::ab
