// `pacecar check-plugin`: does a net plugin do what NCCL relies on?
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/check/host.h"
#include "bench/check/trial.h"
#include "bench/cli/clock.h"
#include "bench/cli/command_line.h"
#include "bench/cli/console.h"
#include "bench/cli/files.h"
#include "bench/cli/subcommands.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

using namespace check;

using Json = nlohmann::json;

struct Finding {
  int version = 0;  // of the plugin's table
  Rule rule;
  Outcome outcome;
};

// In the order of Verdict.
constexpr std::array kVerdictsForPeople = {"pass", "FAIL", "-"};
constexpr std::array kVerdictsInJson = {"pass", "fail", "not offered"};

// `width`: of the longest rule's name.
std::string line_of(const Finding& finding, size_t width) {
  const Outcome& outcome = finding.outcome;
  const std::string detail = outcome.detail.empty() ? "" : fmt::format(": {}", outcome.detail);
  return fmt::format("v{:<3} {:<5} {:<{}}  {}{}", finding.version,
                     kVerdictsForPeople[static_cast<size_t>(outcome.verdict)], finding.rule.name,
                     width, finding.rule.sentence, detail);
}

Json to_json(const std::string& plugin, const std::vector<Finding>& findings) {
  Json rules = Json::array();
  for (const Finding& one : findings) {
    rules.push_back({{"version", one.version},
                     {"rule", one.rule.name},
                     {"sentence", one.rule.sentence},
                     {"verdict", kVerdictsInJson[static_cast<size_t>(one.outcome.verdict)]},
                     {"detail", one.outcome.detail}});
  }
  return {{"schema_version", 1}, {"plugin", plugin}, {"rules", rules}};
}

constexpr Duration kLoadLimit = Duration::from_s(20);
constexpr std::string_view kFooter = R"(
Each rule runs in processes of its own: a plugin that crashes or hangs fails that rule only. Both
ends are on this host; the plugin's own environment variables choose its network. No GPU is needed.
Exit codes: 0 every rule holds or does not apply, 1 one does not hold, 2 wrong usage.)";

constexpr std::string_view kFirstRule = "init";

struct Options {
  std::string plugin;
  std::vector<int> versions;  // empty: the newest
  int device = 0;
  std::string only;
  bool list = false;
  double limit = 60;
  std::string json;
};

std::vector<Rule> rules_of(const Options& options) {
  std::vector<Rule> rules;
  for (const auto& group : {connection_rules(), transfer_rules()}) {
    std::copy_if(group.begin(), group.end(), std::back_inserter(rules), [&](const Rule& rule) {
      return options.only.empty() || rule.name.find(options.only) != std::string_view::npos;
    });
  }
  return rules;
}

// The versions to test. Only child processes load the plugin. Errors: kInvalidArgument (there is
// none to test).
Result<std::vector<int>> versions_of(const Options& options) {
  std::vector<int> found;
  for (int version = nccl::kOldestVersion; version <= nccl::kNewestVersion; ++version) {
    const Outcome outcome = run_trial(1, kLoadLimit, [&](Arena& arena, int rank) {
      const Host host(arena, {options.plugin, version, options.device}, rank);
    });
    if (outcome.verdict == Verdict::kPass) {
      found.push_back(version);
    } else if (outcome.detail.find("exports no") == std::string::npos) {
      return invalid("{}: {}", options.plugin, outcome.detail);
    }
  }
  if (found.empty()) {
    return invalid(
        "{} exports no ncclNetPlugin_v{} to v{}: it is no net plugin for NCCL 2.13 or later",
        options.plugin, nccl::kOldestVersion, nccl::kNewestVersion);
  }
  for (const int version : options.versions) {
    if (std::ranges::find(found, version) != found.end()) continue;
    return invalid("{} has no table of version {}; it has: {}", options.plugin, version,
                   fmt::join(found, ", "));
  }
  return options.versions.empty() ? std::vector{found.back()} : options.versions;
}

// Whether the plugin does not start: then no other rule is tried.
bool does_not_start(const Finding& finding) {
  return finding.rule.name == kFirstRule && finding.outcome.verdict == Verdict::kFail;
}

size_t width_of(const std::vector<Rule>& rules) {
  return std::ranges::max(rules, {}, [](const Rule& rule) { return rule.name.size(); }).name.size();
}

// Records a failure before the host's clean-up, which may crash.
void check_rule(const Rule& rule, Arena& arena, Host& host) {
  try {
    rule.check(host);
  } catch (const NotOffered&) {
    throw;
  } catch (const std::exception& reason) {
    arena.violation.set(reason.what());
    throw;
  }
}

std::vector<Finding> check_version(const Options& options, int version,
                                   const std::vector<Rule>& rules, FILE* people) {
  const Duration limit = cli::duration_of(options.limit);
  std::vector<Finding> findings;
  for (const Rule& rule : rules) {
    const Outcome outcome = run_trial(rule.ranks, limit, [&](Arena& arena, int rank) {
      Host host(arena, {options.plugin, version, options.device}, rank);
      check_rule(rule, arena, host);
    });
    findings.push_back({version, rule, outcome});
    fmt::print(people, "{}\n", line_of(findings.back(), width_of(rules)));
    std::fflush(people);
    if (does_not_start(findings.back())) break;
  }
  return findings;
}

Result<int> check_plugin(const Options& options) {
  const std::vector<Rule> rules = rules_of(options);
  if (options.list) {
    for (const Rule& rule : rules) {
      fmt::print("{:<{}}  {}\n", rule.name, width_of(rules), rule.sentence);
    }
    return cli::kExitOk;
  }
  if (options.plugin.empty()) {
    return invalid("which plugin? Name its shared library: pacecar check-plugin libnccl-net-x.so");
  }
  if (access(options.plugin.c_str(), R_OK) != 0 && options.plugin.find('/') != std::string::npos) {
    return invalid("the plugin '{}' cannot be loaded ({}): name its shared library", options.plugin,
                   std::strerror(errno));
  }
  RETURN_IF_ERROR(cli::check_writable(options.json));
  if (rules.empty()) {
    return invalid("no rule's name contains '{}': --list shows them", options.only);
  }
  ASSIGN_OR_RETURN(const auto versions, versions_of(options));
  FILE* const people = options.json == cli::kStandardOutput ? stderr : stdout;
  std::vector<Finding> findings;
  for (const int version : versions) {
    const std::vector<Finding> found = check_version(options, version, rules, people);
    findings.insert(findings.end(), found.begin(), found.end());
  }
  const auto failed = std::count_if(findings.begin(), findings.end(), [](const Finding& one) {
    return one.outcome.verdict == Verdict::kFail;
  });
  fmt::print(people, "{} of {} rules do not hold\n", failed, findings.size());
  if (!options.json.empty()) {
    RETURN_IF_ERROR(cli::write_json(options.json, to_json(options.plugin, findings)));
  }
  return failed == 0 ? cli::kExitOk : cli::kExitFailed;
}

}  // namespace

int run_check_plugin(int argc, char** argv) {
  Options options;
  CLI::App app("Checks an NCCL net plugin, rule by rule.", "pacecar check-plugin");
  app.footer(std::string(kFooter));
  app.add_option("PLUGIN", options.plugin, "path of the plugin's shared library");
  const CLI::Range tables(nccl::kOldestVersion, nccl::kNewestVersion);
  app.add_option(
         "--table", options.versions,
         "version of the plugin's table, 6 to 12; may be given several times; default: newest")
      ->check(tables);
  app.add_option("--version", options.versions)->check(tables)->group(cli::kSilent);
  app.add_option("--device", options.device, "index of the plugin's NIC")
      ->check(CLI::Range(0, 1023))
      ->capture_default_str();
  app.add_option("--only", options.only, "only rules whose name contains this");
  app.add_flag("--list", options.list, "list the rules");
  app.add_option("--limit", options.limit, "seconds after which a rule counts as hung")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  cli::add_json_flag(app, options.json, "write the findings");
  return cli::run_subcommand(app, argc, argv, {},
                             [&](const cli::Console&) { return check_plugin(options); });
}

}  // namespace pacecar
