// `pacecar preflight`: this host, or with --hosts many at the same time.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/hosts/preflight_groups.h"
#include "bench/hosts/reach.h"
#include "bench/perf/files.h"
#include "bench/perf/interrupt.h"
#include "bench/perf/preflight.h"
#include "bench/perf/run_subcommand.h"
#include "bench/perf/subcommands.h"
#include "bench/preflight/report.h"
#include "transport/base/return_if_error.h"

namespace pacecar::hosts {
namespace {

using perf::Console;
using perf::PreflightOptions;

constexpr double kLimitS = 120;  // in addition to --watch; lost probes of a peer take seconds

nlohmann::json document_of(const std::vector<HostReport>& reports, const Crew& crew,
                           const std::vector<nlohmann::json>& documents) {
  nlohmann::json document = {{"schema_version", 1},
                             {"version", PACECAR_VERSION},
                             {"worst", preflight::to_string(worst_of(reports))},
                             {"hosts", nlohmann::json::array()},
                             {"lost", nlohmann::json::array()},
                             {"groups", nlohmann::json::array()},
                             {"differences", nlohmann::json::array()}};
  const auto names = [&](const std::vector<size_t>& hosts) {
    auto list = nlohmann::json::array();
    for (const size_t host : hosts) list.push_back(reports[host].host);
    return list;
  };
  for (size_t i = 0; i < reports.size(); ++i) {
    document["hosts"].push_back({{"name", reports[i].host}, {"preflight", documents[i]}});
  }
  for (size_t i = 0; i < crew.size(); ++i) {
    if (crew.lost(i)) {
      document["lost"].push_back({{"name", crew.host(i).name}, {"why", crew.why_lost(i)}});
    }
  }
  for (const Group& group : group_findings(reports)) {
    document["groups"].push_back(preflight::to_json(group.finding));
    document["groups"].back()["hosts"] = names(group.hosts);
  }
  for (const Difference& difference : find_differences(reports)) {
    auto values = nlohmann::json::array();
    for (const auto& [value, hosts] : difference.values) {
      values.push_back({{"value", value}, {"hosts", names(hosts)}});
    }
    document["differences"].push_back({{"fact", difference.fact}, {"values", values}});
  }
  return document;
}

// `host_flags`: what the command on each host is given.
Result<int> examine_hosts(const PreflightOptions& flags, const std::vector<std::string>& host_flags,
                          const Console& console) {
  RETURN_IF_ERROR(perf::check_writable(flags.json_file));
  ASSIGN_OR_RETURN(const auto targets, targets_of(flags.many));
  const perf::Interrupt interrupt;
  ASSIGN_OR_RETURN(const auto crew, reach(targets, flags.many, console));
  std::vector<std::string> words{"preflight"};
  words.insert(words.end(), host_flags.begin(), host_flags.end());
  words.insert(words.end(), {"--json=-", "--quiet", "--no-color"});
  const double limit_s = kLimitS + static_cast<double>(flags.watch_s);
  const auto ends = run_on_all(
      *crew, [&](size_t) { return words; }, Duration::from_s(static_cast<int64_t>(limit_s)),
      console);
  std::vector<HostReport> reports;
  std::vector<nlohmann::json> documents;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (!ends[i]) continue;
    const std::string& name = crew->host(i).name;
    auto report = read_report(name, ends[i]->output);
    if (report) {
      reports.push_back(std::move(*report));
      documents.push_back(nlohmann::json::parse(ends[i]->output));
      continue;
    }
    const bool failed = ends[i]->output.empty();
    const std::string why = failed ? why_failed(*ends[i]) : report.error().message;
    console.error(fmt::format("{}: {}", name, why));
    crew->lose(i, why);
  }
  if (reports.empty()) return fail(ErrorCode::kPeer, "no host has been examined: see above");
  if (flags.json_file != perf::kStandardOutput) fmt::print("{}", to_text(reports));
  if (!flags.json_file.empty()) {
    RETURN_IF_ERROR(perf::write_json(flags.json_file, document_of(reports, *crew, documents)));
  }
  if (reports.size() < crew->size()) return perf::kExitFailed;
  return perf::exit_code_of(worst_of(reports));
}

}  // namespace

int run_preflight(int argc, char** argv) {
  PreflightOptions flags;
  CLI::App app(
      "Examines a host before Pacecar or NCCL run on it, and prints a cure for each problem.",
      "pacecar preflight");
  perf::add_preflight_flags(app, flags);
  return perf::run_subcommand(
      app, argc, argv, {.quiet = &flags.quiet, .no_color = &flags.no_color},
      [&](const Console& console) {
        return flags.many.given() && !flags.list
                   ? examine_hosts(flags, perf::given_flags(app, perf::kOwnFlags), console)
                   : perf::preflight_this_host(flags, console);
      });
}

}  // namespace pacecar::hosts
