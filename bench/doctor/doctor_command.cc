// `pacecar doctor`: which rank, NIC and path of the running job is the slowest, and why.
#include <fmt/core.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "bench/cli/command_line.h"
#include "bench/cli/console.h"
#include "bench/cli/files.h"
#include "bench/cli/interrupt.h"
#include "bench/cli/subcommands.h"
#include "bench/doctor/documents.h"
#include "bench/doctor/gather.h"
#include "bench/doctor/report.h"
#include "bench/doctor/verdict.h"
#include "bench/hosts/agent_pool.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"
#include "transport/state/state_directory.h"

namespace pacecar {
namespace {

using namespace doctor;
using cli::Console;

constexpr uint64_t kLongestWatch = 3600;  // seconds
constexpr uint64_t kLargestPid = 1U << 30;
constexpr cli::ExitCode kExitError = cli::kExitUsage;  // also when there is nothing to examine

constexpr const char* kFooter = R"(Examples:
  pacecar doctor                        all Pacecar processes of this user; as root, of all users
  pacecar doctor --watch 10             rates over ten seconds
  pacecar doctor --hosts node1,node2    one verdict on a job of several hosts, over ssh
  ssh node1 pacecar doctor --json > node1.json
  pacecar doctor node1.json node2.json  the same by hand
Exit codes: 0 nothing is wrong, 1 something is, or a host gave no answer, 2 wrong usage, or there is
nothing to look at.)";

struct Flags {
  std::vector<std::string> files;
  uint64_t pid = 0;
  uint64_t watch_s = 1;
  std::string json_file;
  cli::HostsFlags many;
};

void add_flags(CLI::App& app, Flags& flags) {
  auto* files = app.add_option("FILES", flags.files, "what --json printed, in place of this host");
  auto* pid = app.add_option("--pid", flags.pid, "this process only")
                  ->check(cli::whole_number(1, kLargestPid))
                  ->excludes(files);
  app.add_option("--watch", flags.watch_s,
                 "seconds between the two samples that give rates; 0: one sample, no rates")
      ->check(cli::whole_number(0, kLongestWatch))
      ->capture_default_str()
      ->excludes(files);
  cli::add_json_flag(app, flags.json_file, "write all that was gathered, findings and verdict");
  cli::add_hosts_flags(app, flags.many, "ask these hosts, not this one")
      ->excludes(files)
      ->excludes(pid);
  app.footer(kFooter);
}

Result<Evidence> from_files(const std::vector<std::string>& files) {
  Evidence evidence;
  for (const std::string& name : files) {
    ASSIGN_OR_RETURN(const auto text, cli::read_text(name));
    if (auto added = add_evidence(text, evidence); !added) {
      return fail(added.error().code,
                  "'{}' is not what 'pacecar doctor --json' of this version writes: "
                  "make it there with 'pacecar doctor --json > FILE'",
                  name);
    }
  }
  return evidence;
}

Result<Evidence> from_this_host(const Flags& flags, const Console& console) {
  ASSIGN_OR_RETURN(const auto directories, state_directories());
  if (directories != usual_state_directories()) {
    if (const auto usable = StateDirectory::find(directories.front()); !usable) {
      const bool missing = usable.error().code == ErrorCode::kNotFound;  // processes make it
      return fail(usable.error().code, "{}: PACECAR_STATE_DIR: {}",
                  missing ? "no process with Pacecar is to be seen"
                          : "the processes' sockets cannot be looked for",
                  usable.error().message);
    }
  }
  Gathered gathered = gather({.directories = directories,
                              .pid = flags.pid,
                              .between = Duration::from_s(static_cast<int64_t>(flags.watch_s))});
  for (const std::string& warning : gathered.warnings) console.warn(warning);
  return std::move(gathered.evidence);
}

// The output of one host's doctor. A host without such a process is reported and left out.
void add_host(const std::string& name, const hosts::Event& ended, const Console& console,
              Evidence& evidence) {
  if (ended.code == kExitError || ended.output.empty()) {
    console.warn(fmt::format("{}: {}", name, hosts::why_failed(ended)));
  } else if (auto added = add_evidence(ended.output, evidence); !added) {
    console.warn(fmt::format(
        "{}: its output is not of this version of pacecar doctor: install the same one", name));
  }
}

// `lost`: the hosts that gave no answer, as in the document.
Result<Evidence> from_hosts(const Flags& flags, const Console& console, nlohmann::json& lost) {
  constexpr Duration kLimit = Duration::from_s(60);  // in addition to --watch
  ASSIGN_OR_RETURN(const auto targets, hosts::targets_of(flags.many));
  const cli::Interrupt interrupt;
  ASSIGN_OR_RETURN(const auto crew, hosts::reach(targets, flags.many, console));
  const std::vector<std::string> words{"doctor", "--json", "--quiet", "--watch",
                                       std::to_string(flags.watch_s)};
  const auto ends = hosts::run_on_all(
      *crew, [&](size_t) { return words; },
      kLimit + Duration::from_s(static_cast<int64_t>(flags.watch_s)), console);
  Evidence evidence;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (ends[i]) add_host(crew->host(i).name, *ends[i], console, evidence);
    if (crew->lost(i)) lost.push_back({{"name", crew->host(i).name}, {"why", crew->why_lost(i)}});
  }
  if (cli::Interrupt::asked()) return fail(ErrorCode::kUnavailable, "interrupted");
  return evidence;
}

// Why there is nothing to examine.
std::string why_nothing(uint64_t pid) {
  if (pid == 0) return kNoProcess;
  if (access(fmt::format("/proc/{}", pid).c_str(), F_OK) != 0) {
    return fmt::format(
        "there is no process {}: 'pacecar doctor' without --pid lists those with Pacecar", pid);
  }
  return fmt::format(
      "process {} serves no state: it runs without Pacecar, or as another user; 'pacecar doctor' "
      "without --pid lists those that do",
      pid);
}

Result<Job> job_of(const Evidence& evidence, uint64_t pid) {
  Job job;
  for (const SilentProcess& process : evidence.silent) job.add(process);
  for (const Samples& samples : evidence.seen) {
    ASSIGN_OR_RETURN(auto process, read_samples(samples));
    job.add(std::move(process));
  }
  if (job.empty()) {
    return fail(ErrorCode::kNotFound, why_nothing(pid));
  }
  return job;
}

Result<int> examine_job(const Flags& flags, const Console& console) {
  RETURN_IF_ERROR(cli::check_writable(flags.json_file));
  auto lost = nlohmann::json::array();
  ASSIGN_OR_RETURN(const auto evidence, flags.many.given()     ? from_hosts(flags, console, lost)
                                        : !flags.files.empty() ? from_files(flags.files)
                                                               : from_this_host(flags, console));
  ASSIGN_OR_RETURN(const auto job, job_of(evidence, flags.pid));
  const auto findings = examine(job);
  const Verdict verdict = conclude(job, findings);
  if (!flags.json_file.empty()) {
    nlohmann::json document = to_json(evidence);
    add_conclusions(findings, verdict, document);
    document["lost"] = lost;
    RETURN_IF_ERROR(cli::write_json(flags.json_file, document));
  }
  if (flags.json_file != cli::kStandardOutput) {
    fmt::print("{}", to_text(job, findings, verdict));
  }
  return verdict.trouble || !lost.empty() ? cli::kExitFailed : cli::kExitOk;
}

}  // namespace

int run_doctor(int argc, char** argv) {
  Flags flags;
  CLI::App app("Reads the state of running processes: which rank, NIC and path is slow, and why?",
               "pacecar doctor");
  add_flags(app, flags);
  return cli::run_subcommand(
      app, argc, argv,
      {.hints = {.reads_json = true}, .exit_code = [](const Error&) { return kExitError; }},
      [&](const Console& console) { return examine_job(flags, console); });
}

}  // namespace pacecar
