// The program `pacecar`: runs the subcommand that its first argument names, itself or in a module.
#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "bench/cli/build_info.h"
#include "bench/cli/command_line.h"
#include "bench/cli/console.h"
#include "bench/cli/files.h"
#include "bench/cli/interrupt.h"
#include "bench/cli/subcommands.h"
#include "bench/modules/module.h"
#include "bench/perf/options.h"
#include "bench/perf/probe.h"
#include "bench/topics.h"
#include "transport/base/edit_distance.h"

namespace pacecar {
namespace {

int diagnose(int argc, char** argv) { return run_in_module("diagnose", argc, argv); }
int simulate(int argc, char** argv) { return run_in_module("simulate", argc, argv); }

// Between two hosts; between all pairs of many it is the module's.
template <perf::TestKind kKind>
int run_pair(int argc, char** argv) {
  return perf::run_with_options(
      kKind, argc, argv,
      [&](const perf::TestOptions& options, const cli::Console& console) -> Result<int> {
        if (options.many.flags.given()) return diagnose(argc, argv);
        return perf::run_test(kKind, options, console);
      });
}

struct Subcommand {
  std::string_view group;  // of kTopics; empty: not listed
  std::string_view name;
  std::string_view summary;
  int (*run)(int argc, char** argv);
};

constexpr Subcommand kSubcommands[] = {
    {"measure", "bw", "bandwidth between two hosts, or all of many",
     run_pair<perf::TestKind::kBandwidth>},
    {"measure", "lat", "latency between two hosts, or all of many",
     run_pair<perf::TestKind::kLatency>},
    {"diagnose", "preflight", "what is wrong with this host, or with many, and what cures it",
     diagnose},
    {"diagnose", "doctor", "which rank, NIC and path of a running job is slow, and why", diagnose},
    {"diagnose", "top", "NICs and flows of the running jobs, live", diagnose},
    {"diagnose", "metrics", "what the processes of this host count, for Prometheus", diagnose},
    {"diagnose", "report", "preflight, bw, lat, doctor and settings in one file for a ticket",
     diagnose},
    {"diagnose", "info", "NICs, congestion controls, limits and parameters of this host", run_info},
    {"simulate", "sim", "one run in a simulated fabric", simulate},
    {"simulate", "ab", "compares arms: many simulated runs, or real programs", simulate},
    {"simulate", "switch", "forwards real frames through the simulated switch, in real time",
     simulate},
    {"plan", "predict", "how long collectives take on a described cluster", simulate},
    {"plan", "plan", "how to train a model on unequal accelerators: the best divisions", simulate},
    {"integrate", "run", "runs a program of libibverbs or libfabric over Pacecar's NICs", diagnose},
    {"integrate", "check-plugin", "whether any NCCL net plugin does what NCCL relies on", diagnose},
    {"", "agent", "one host of --hosts, started there by other subcommands", diagnose},
};

constexpr std::string_view kSummary =
    "a user-space RDMA transport that decides its rates before congestion";

constexpr std::string_view kFooter =
    R"('pacecar SUBCOMMAND --help' shows the flags that most people need, --help-all shows all.
'pacecar help TOPIC' shows examples and limits of measure, diagnose, simulate, plan or integrate,
'pacecar help perftest' its flags here, 'pacecar help parameters' all settings of the transport.
Every subcommand takes --quiet: no messages but warnings and errors. NO_COLOR=1: no colours.
Exit codes: 0 success, 1 failed, 2 wrong usage, 3 a threshold was missed (see the flags' help).
)";

void print_help() {
  fmt::print("pacecar {}: {}\n\nUsage: pacecar SUBCOMMAND [flags]\n", PACECAR_VERSION, kSummary);
  std::string_view group;
  for (const Subcommand& subcommand : kSubcommands) {
    if (subcommand.group.empty()) continue;
    if (group != subcommand.group) fmt::print("\n{}\n", subcommand.group);
    group = subcommand.group;
    fmt::print("  {:<13} {}\n", subcommand.name, subcommand.summary);
  }
  fmt::print("\n{}", kFooter);
}

// For manual pages and completions; --describe of each subcommand has its flags (cli/help.h).
void print_description() {
  nlohmann::json subcommands = nlohmann::json::array();
  for (const Subcommand& subcommand : kSubcommands) {
    if (subcommand.group.empty()) continue;
    subcommands.push_back({{"name", subcommand.name}, {"summary", subcommand.summary}});
  }
  const nlohmann::json document = {{"version", PACECAR_VERSION},
                                   {"summary", kSummary},
                                   {"subcommands", subcommands},
                                   {"footer", kFooter}};
  fmt::print("{}\n", document.dump(1));
}

const Subcommand* subcommand_of(std::string_view name) {
  const auto found = std::ranges::find(kSubcommands, name, &Subcommand::name);
  return found == std::end(kSubcommands) ? nullptr : &*found;
}

// 'pacecar help TOPIC', where a topic is a group, another topic or a subcommand.
int help(std::string_view name, const cli::Console& console) {
  if (const std::string_view* text = topic(name)) {
    fmt::print("{}", *text);
    return cli::kExitOk;
  }
  std::string command(name == "parameters" ? "info" : name);
  std::string flag(name == "parameters" ? "--config" : "--help");
  char* words[] = {command.data(), flag.data(), nullptr};
  if (const Subcommand* subcommand = subcommand_of(command)) return subcommand->run(2, words);
  console.error(fmt::format("there is no topic '{}': 'pacecar help' lists them", name));
  return cli::kExitUsage;
}

int run(int argc, char** argv, const cli::Console& console) {
  const std::string_view name = argc > 1 ? argv[1] : "--help";
  if (name == "help" && argc > 2) return help(argv[2], console);
  if (name == "--help" || name == "-h" || name == "help") {
    print_help();
    return cli::kExitOk;
  }
  if (name == "--describe") {
    print_description();
    return cli::kExitOk;
  }
  if (name == "--version" || name == "-V") {
    fmt::print("pacecar {} (commit {}, {})\nback ends: {}\n", PACECAR_VERSION, build_commit(),
               build_compiler(), PACECAR_BACK_ENDS);
    return cli::kExitOk;
  }
  if (const Subcommand* found = subcommand_of(name)) return found->run(argc - 1, argv + 1);
  std::vector<std::string> known;
  for (const Subcommand& subcommand : kSubcommands) known.emplace_back(subcommand.name);
  console.error(fmt::format("there is no subcommand '{}'{}: 'pacecar --help' lists them", name,
                            did_you_mean(name, known)));
  return cli::kExitUsage;
}

}  // namespace
}  // namespace pacecar

int main(int argc, char** argv) {
  using namespace pacecar;
  cli::end_by_signals_as_first_process();
  std::signal(SIGCHLD, SIG_DFL);  // ignored, it would hide how the programs that we start end
  const cli::Console console(false, true);
  int code = cli::kExitOk;
  try {
    code = run(argc, argv, console);
    // fmt::print's, when a buffer cannot be written; start_thread's
  } catch (const std::system_error& error) {
    if (std::ferror(stdout) == 0) {
      console.error(error.what());
      code = cli::kExitFailed;
    }
  }
  const auto flushed = cli::flush_output();
  if (flushed || code != cli::kExitOk) return code;  // the first failure has been reported
  console.error(flushed.error().message);
  return cli::kExitFailed;
}
