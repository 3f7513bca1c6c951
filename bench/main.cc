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

// The pages of 'pacecar help TOPIC': examples and limits of a group of subcommands.
struct Topic {
  std::string_view name;
  std::string_view text;
};

constexpr Topic kTopics[] = {
    {"measure", R"(server$ pacecar bw                      wait for a client
client$ pacecar bw server               64 KiB messages, 1000 of them
client$ pacecar bw -a server            all sizes from 2 to 2^23 bytes
client$ pacecar bw -D 10 -q 4 server    four connections for ten seconds
client$ pacecar lat -n 10000 server     half of a round trip (server: pacecar lat)
pacecar bw --hosts gpu[01-16]           all pairs of 16 hosts, over ssh: who is slow?
pacecar bw --hosts slurm --launch srun --least 0.8 --html matrix.html

What they do not do: RDMA reads and atomics; unreliable transports and multicast; NCCL's
collectives (pacecar-nccl runs these).
)"},
    {"diagnose",
     R"(pacecar preflight                       examine this host before a job runs on it
pacecar preflight --hosts gpu[01-16]    examine all hosts, and the paths between them
pacecar doctor                          why does the job here hang, or go no faster?
pacecar doctor --hosts node1,node2      one verdict on a job of several hosts
pacecar top                             NICs and flows, live
pacecar metrics --listen                serve Prometheus what the processes count
pacecar info -c                         every parameter, its value and where it came from

What they do not do: change a host (they print the cure); look into switches (only what a path
shows at its ends); see jobs that do not run over Pacecar.
)"},
    {"simulate", R"(pacecar sim --workload incast:senders=32,bytes=1MB --cc swift
                                        32 hosts send to one, on 128 hosts at 100 Gb/s
pacecar sim --list                      topologies, workloads, algorithms and metrics
pacecar ab bench/plans/smoke.toml       a plan: all its runs, summary and report
pacecar ab --a PACECAR_CC=swift --b PACECAR_CC=fixed -- COMMAND
                                        one command under two settings, in turn
pacecar switch --port veth0 --port veth1 --rate 200M
                                        a switch with these queues between real interfaces
Installed, the plans lie in share/pacecar/plans.

What they do not do: bit errors of links; PCIe and memory of the hosts; adaptive routing of
switches; more than some thousand hosts in minutes.
)"},
    {"plan", R"(pacecar predict --hosts 64 --op alltoall
                                        its time by size, and what limits it
pacecar predict --hosts 12500 --set topology.hosts_per_leaf=32 --set topology.oversubscription=2
pacecar plan bench/plan/examples/hethub.toml
                                        a model on 768 accelerators of two kinds
Installed, the example lies in share/pacecar/examples.

What they do not do: measure; NCCL's times per step and NVLink are assumed, nothing is lost, and
other jobs are a share of the links. Confirm a choice with nccl-tests or pacecar-nccl.
)"},
    {"integrate", R"(NCCL_NET_PLUGIN=pacecar mpirun ... all_reduce_perf
                                        NCCL over Pacecar; nothing else changes
pacecar-nccl --cpu --sizes 4K,1M        NCCL over its own sockets and over Pacecar, without a GPU
pacecar check-plugin libnccl-net-x.so   every rule of NCCL's, pass or fail, and its speed
pacecar run -- ib_write_bw              a program of libibverbs, without an RDMA NIC
pacecar run --libfabric -- fi_pingpong -e rdm
find_package(Pacecar REQUIRED)          CMake of a C++ program: link Pacecar::pacecar

What they do not do: NCCL's CollNet (in-network reduction); XRC, DC and raw packets of libibverbs;
GPU memory of other vendors than NVIDIA.
)"},
    {"perftest", R"(Flags of ib_write_bw and ib_write_lat that work in bw and lat as well:
-T, --tos, --tclass N   IP type of service of data packets (PACECAR_TC)
-x, --gid-index N       PACECAR_GID_INDEX        --pkey_index N   PACECAR_PKEY
-S, --sl N              service level on InfiniBand (PACECAR_SL)
-i, --ib-port N         as -d mlx5_0:N           --ib-dev         as -d
-u, --qp-timeout N      peer timeout: 8 x 4.096 us x 2^N, from 0.1 s to 1 h (PACECAR_TIMEOUT)
-w, --limit_bw RATE     exit with 3 below this average, in the unit of the columns
-l, --post_list N       sends that are started together
-f, --margin SECONDS    with -D: excluded at the start and at the end
-N, --noPeak            0 as peak bandwidth      --report-both    with -b: both directions
--output WHAT           one figure alone: bandwidth, message_rate or latency
--latency_gap US        time between an answer and the next message
--cpu_util              a column with this process' CPU time
--source_ip ADDRESS     client: local address of the control connection
--use_cuda_bus_id ID    GPU by its PCI address   --use_cuda_dmabuf   PACECAR_GPU=direct
--out_json              --json=perftest_out.json --out_json_file FILE   --json=FILE
-c RC, -F, --CPU-freq, --perform_warm_up, --mr_per_qp, -q 1 of lat: no effect
Other flags of perftest are refused with the reason.
)"},
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
  const auto* const topic = std::ranges::find(kTopics, name, &Topic::name);
  if (topic != std::end(kTopics)) {
    fmt::print("{}", topic->text);
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
