// `pacecar preflight`: this host, or with --hosts many at the same time.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/cli/command_line.h"
#include "bench/cli/files.h"
#include "bench/cli/interrupt.h"
#include "bench/cli/subcommands.h"
#include "bench/hosts/agent_pool.h"
#include "bench/hosts/path_check.h"
#include "bench/hosts/preflight_groups.h"
#include "bench/preflight/checks.h"
#include "bench/preflight/kernel_probes.h"
#include "bench/preflight/read_facts.h"
#include "bench/preflight/report.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/invalid.h"
#include "transport/base/params_environment.h"
#include "transport/base/return_if_error.h"

namespace pacecar::hosts {
namespace {

using cli::Console;
using nlohmann::json;
using preflight::Severity;

constexpr uint64_t kLimitS = 120;  // in addition to --watch; lost probes of a peer take seconds
constexpr uint64_t kLongestWatch = 3600;  // seconds

constexpr const char* kExamples = R"(Examples:
  pacecar preflight                        this host
  pacecar preflight --only rdma,gid,mtu    some checks of it
  pacecar preflight --only fabric --watch 10
                                           are packets lost now? while a job runs
  pacecar preflight --only mtu --peer HOST packet sizes on the way to HOST and back
  pacecar preflight --root DIR             DIR/sys, DIR/proc, ...: files copied from a host
  pacecar preflight --hosts gpu[01-16]     16 hosts at once: what is wrong, what differs, and
                                           whether the paths between them carry a job's packets
Exit codes: 0 no problem, 1 an error was found or the run failed, 2 wrong usage, 3 only warnings.)";

struct Flags {
  std::string only;
  std::string root;
  std::string peer;
  std::string json_file;
  uint64_t watch_s = 0;
  bool list = false;
  cli::HostsFlags many;
};

void add_flags(CLI::App& app, Flags& flags) {
  app.add_option("--only", flags.only, "checks to run, such as rdma,gid; --list names them");
  app.add_flag("--list", flags.list, "list the checks and what each can find");
  auto* watch = app.add_option("--watch", flags.watch_s, "watch the counters for these seconds")
                    ->check(cli::whole_number(1, kLongestWatch));
  auto* peer =
      app.add_option("--peer", flags.peer, "the largest packets on the way to this host and back");
  cli::add_json_flag(app, flags.json_file, "write the findings");
  auto* hosts = cli::add_hosts_flags(app, flags.many, "examine these hosts, not this one");
  app.option_defaults()->group("Options");
  app.add_option("--root", flags.root, "examine a copy of a host's files")
      ->check(CLI::ExistingDirectory)
      ->excludes(peer)
      ->excludes(watch)
      ->excludes(hosts);
  app.footer(kExamples);
}

cli::ExitCode exit_code_of(Severity worst) {
  if (worst == Severity::kError) return cli::kExitFailed;
  return worst == Severity::kWarning ? cli::kExitThresholdMissed : cli::kExitOk;
}

// This process's settings; a copied host's settings are not known.
preflight::Settings settings_of(bool live) {
  preflight::Settings settings;
  settings.version = PACECAR_VERSION;
  settings.socket_buffer = Params().socket_buffer;
  if (!live) return settings;
  const auto params = load_params_from_environment({}, &settings.warnings);
  if (params) {
    settings.socket_buffer = params->socket_buffer;
    settings.gid_index = params->gid_index;
  } else {
    settings.error = params.error().message;
  }
  return settings;
}

// Opens the NICs as a job does.
void try_nics(preflight::Settings& settings) {
  const auto context = Context::open({});
  if (!context) {
    settings.nic_error = context.error().message;
    return;
  }
  std::vector<std::string> names;
  for (const NicInfo& nic : (*context)->nics()) names.push_back(nic.name);
  settings.nics = fmt::format("{}", fmt::join(names, ", "));
}

preflight::Facts gather(const Flags& flags, const Console& console) {
  const bool live = flags.root.empty();
  const preflight::HostTree tree(live ? "/" : flags.root);
  preflight::Facts facts = preflight::read_facts(tree, live);
  if (flags.watch_s > 0) {
    console.note(fmt::format("watching the counters for {} s", flags.watch_s));
    std::this_thread::sleep_for(std::chrono::seconds(flags.watch_s));
    preflight::Facts later = preflight::read_facts(tree, live);
    preflight::set_growth(facts, Duration::from_s(static_cast<int64_t>(flags.watch_s)), later);
    facts = std::move(later);
  }
  facts.settings = settings_of(live);
  if (!flags.peer.empty()) {
    console.note(fmt::format("probing the way to {}; lost packets take seconds", flags.peer));
    facts.peer = preflight::probe_peer(flags.peer);
  }
  return facts;
}

// Refuses a copy without any file of a host.
Result<void> check_copy(const std::string& root) {
  if (root.empty()) return {};
  for (const char* folder : {"sys", "proc", "dev", "etc"}) {
    std::error_code ignored;
    if (std::filesystem::exists(std::filesystem::path(root) / folder, ignored)) return {};
  }
  return invalid("--root {} holds no sys, proc, dev or etc: copy those of a host there", root);
}

Result<int> examine_host(const Flags& flags, const Console& console) {
  RETURN_IF_ERROR(check_copy(flags.root));
  ASSIGN_OR_RETURN(const auto checks, preflight::choose_checks(flags.only));
  RETURN_IF_ERROR(cli::check_writable(flags.json_file));
  preflight::Facts facts = gather(flags, console);
  const bool software = std::ranges::count(checks, "software", &preflight::Check::name) > 0;
  if (flags.root.empty() && software && facts.settings.error.empty()) try_nics(facts.settings);
  const auto findings = preflight::examine(facts, checks);
  json document = preflight::to_json(findings, PACECAR_VERSION);
  document["facts"] = preflight::comparable(facts);
  const preflight::TextOptions options{.color = console.colors_output(), .quiet = console.quiet()};
  RETURN_IF_ERROR(
      cli::write_results(preflight::to_text(findings, options), flags.json_file, document));
  return findings.all().empty() ? cli::kExitFailed : exit_code_of(findings.worst());
}

json document_of(const std::vector<HostReport>& reports, const AgentPool& agents,
                 const std::optional<PathReport>& paths) {
  json document = {{"schema_version", 1},
                   {"version", PACECAR_VERSION},
                   {"worst", preflight::to_string(worst_of(reports))},
                   {"hosts", json::array()},
                   {"lost", json::array()},
                   {"groups", json::array()},
                   {"differences", json::array()}};
  for (const HostReport& report : reports) {
    document["hosts"].push_back({{"name", report.host}, {"preflight", report.document}});
  }
  for (size_t i = 0; i < agents.size(); ++i) {
    if (!agents.lost(i)) continue;
    document["lost"].push_back({{"name", agents.host(i).name}, {"why", agents.why_lost(i)}});
  }
  for (const Group& group : group_findings(reports)) {
    document["groups"].push_back(preflight::to_json(group.finding));
    document["groups"].back()["hosts"] = group.hosts;
  }
  if (paths) document["paths"] = paths->document();
  for (const Difference& difference : find_differences(reports)) {
    auto values = json::array();
    for (const auto& [value, hosts] : difference.values) {
      values.push_back({{"value", value}, {"hosts", hosts}});
    }
    document["differences"].push_back({{"fact", difference.fact}, {"values", values}});
  }
  return document;
}

// `words`: the flags of each host's own command.
Result<int> examine_hosts(const Flags& flags, std::vector<std::string> words,
                          const Console& console) {
  RETURN_IF_ERROR(cli::check_writable(flags.json_file));
  ASSIGN_OR_RETURN(const auto targets, targets_of(flags.many));
  // So that a path without an answer is found out soon; the agents get these.
  setenv("PACECAR_CONNECT_TIMEOUT", "3s", /*overwrite=*/0);
  setenv("PACECAR_TIMEOUT", "5s", /*overwrite=*/0);
  const cli::Interrupt interrupt;
  ASSIGN_OR_RETURN(const auto agents, reach(targets, flags.many, console));
  words.insert(words.begin(), "preflight");
  words.insert(words.end(), {"--json=-", "--quiet", "--no-color"});
  const auto limit = Duration::from_s(static_cast<int64_t>(kLimitS + flags.watch_s));
  const auto ends = run_on_all(
      *agents, [&](size_t) { return words; }, limit, console);
  std::vector<HostReport> reports;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (!ends[i]) continue;
    const std::string& name = agents->host(i).name;
    auto report = read_report(name, ends[i]->output);
    if (report) {
      reports.push_back(std::move(*report));
      continue;
    }
    const bool failed = ends[i]->output.empty();
    const std::string why = failed ? why_failed(*ends[i]) : report.error().message;
    console.error(fmt::format("{}: {}", name, why));
    agents->lose(i, why);
  }
  if (reports.empty()) return fail(ErrorCode::kPeer, "no host has been examined: see above");
  std::optional<PathReport> paths;
  if (flags.only.empty() && agents->ready_count() > 1) paths = check_paths(*agents, console);
  RETURN_IF_ERROR(
      cli::write_results((paths ? paths->text() : "") + to_text(reports, agents->size()),
                         flags.json_file, document_of(reports, *agents, paths)));
  if (cli::Interrupt::asked()) console.note("interrupted: not all paths have been tried");
  if (agents->ready_count() < agents->size() || cli::Interrupt::asked()) return cli::kExitFailed;
  return exit_code_of(std::max(worst_of(reports), paths ? paths->worst() : Severity::kOk));
}

Result<int> run(const CLI::App& app, const Flags& flags, const Console& console) {
  if (flags.list) {
    fmt::print("{}", preflight::list_checks());
    return cli::kExitOk;
  }
  if (flags.many.given()) return examine_hosts(flags, cli::given_flags(app), console);
  return examine_host(flags, console);
}

}  // namespace

int run_preflight(int argc, char** argv) {
  Flags flags;
  CLI::App app(
      "Examines a host before Pacecar or NCCL run on it, and prints a cure for each problem.",
      "pacecar preflight");
  add_flags(app, flags);
  return cli::run_subcommand(app, argc, argv, {},
                             [&](const Console& console) { return run(app, flags, console); });
}

}  // namespace pacecar::hosts
