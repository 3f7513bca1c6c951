// The program `pacecar`: runs the subcommand that its first argument names, itself or in a module.
#include <fmt/core.h>

#include <csignal>
#include <cstdio>
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
#include "transport/base/edit_distance.h"

namespace pacecar {
namespace {

struct Subcommand {
  std::string_view name;
  std::string_view summary;
  int (*run)(int argc, char** argv);
};

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

constexpr Subcommand kSubcommands[] = {
    {"bw", "bandwidth between two hosts, or all of many", run_pair<perf::TestKind::kBandwidth>},
    {"lat", "latency between two hosts, or all of many", run_pair<perf::TestKind::kLatency>},
    {"sim", "one run in a simulated fabric", simulate},
    {"plan", "how to train a model on unequal accelerators: the best divisions", simulate},
    {"predict", "how long collectives take on a described cluster", simulate},
    {"ab", "compares arms: many simulated runs, or real programs", simulate},
    {"switch", "forwards real frames through the simulated switch, in real time", simulate},
    {"info", "NICs, congestion controls, limits and parameters of this host", run_info},
    {"preflight", "what is wrong with this host, or with many, and what cures it", diagnose},
    {"doctor", "which rank, NIC and path of a running job is slow, and why?", diagnose},
    {"top", "NICs and flows of the running jobs, live", diagnose},
    {"metrics", "what the processes of this host count, for Prometheus", diagnose},
    {"check-plugin", "does an NCCL net plugin, any, do what NCCL relies on?", diagnose},
    {"run", "runs a program of libibverbs or libfabric over Pacecar's NICs", diagnose},
    {"agent", "one host of --hosts, started there by bw, lat, preflight and doctor", diagnose},
};

constexpr std::string_view kSummary =
    "a user-space RDMA transport that decides its rates before congestion";

constexpr std::string_view kExamples = R"(
Examples:
  server$ pacecar bw                      wait for a client
  client$ pacecar bw server               64 KiB messages, 1000 of them
  client$ pacecar bw -a server            all sizes from 2 to 2^23 bytes
  client$ pacecar bw -D 10 -q 4 server    four connections for ten seconds
  client$ pacecar lat -n 10000 server     half of a round trip (server: pacecar lat)
  pacecar bw --hosts gpu[01-16]           all pairs of 16 hosts, over ssh: who is slow?
  pacecar info -c                         every parameter, its value and where it came from
  pacecar preflight                       examine this host before a job runs on it
  pacecar doctor                          why does the job that runs here not go faster?
  pacecar top --hosts node1,node2         what two hosts send and receive, live
  pacecar metrics --listen                serve Prometheus what its processes count
  pacecar run -- ib_write_bw              a program of libibverbs, without an RDMA NIC
  pacecar check-plugin libnccl-net-x.so   every rule of NCCL's, pass or fail, and its speed
  pacecar sim --workload incast:senders=32,bytes=1MB --cc swift
                                          32 hosts send to one, on 128 hosts at 100 Gb/s
  pacecar plan bench/plan/examples/hethub.toml
                                          a model on 768 accelerators of two kinds
  pacecar predict --hosts 64 --op alltoall
                                          its time by size, and what limits it
  pacecar ab bench/plans/smoke.toml       a plan: all its runs, summary and report
  pacecar ab --a PACECAR_CC=swift --b PACECAR_CC=fixed -- COMMAND
                                          one command under two settings, in turn

'pacecar SUBCOMMAND --help' lists the flags of a subcommand.
Exit codes: 0 success, 1 failed, 2 wrong usage, 3 a threshold was missed, or
preflight has warnings (of ab and doctor: see their --help).
)";

void print_help() {
  fmt::print("pacecar {}: {}\n\nUsage: pacecar SUBCOMMAND [flags]\n\nSubcommands:\n",
             PACECAR_VERSION, kSummary);
  for (const Subcommand& subcommand : kSubcommands) {
    fmt::print("  {:<13} {}\n", subcommand.name, subcommand.summary);
  }
  fmt::print("{}", kExamples);
}

// For manual pages and completions; --describe of each subcommand has its flags (command_line.cc).
void print_description() {
  nlohmann::json subcommands = nlohmann::json::array();
  for (const Subcommand& subcommand : kSubcommands) {
    subcommands.push_back({{"name", subcommand.name}, {"summary", subcommand.summary}});
  }
  const nlohmann::json document = {{"version", PACECAR_VERSION},
                                   {"summary", kSummary},
                                   {"subcommands", subcommands},
                                   {"footer", kExamples}};
  fmt::print("{}\n", document.dump(1));
}

int run(int argc, char** argv, const cli::Console& console) {
  const std::string_view name = argc > 1 ? argv[1] : "--help";
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
  for (const Subcommand& subcommand : kSubcommands) {
    if (name == subcommand.name) return subcommand.run(argc - 1, argv + 1);
  }
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
