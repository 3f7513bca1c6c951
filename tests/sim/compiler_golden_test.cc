// Whole runs against results that are kept with the sources, so that a different result of another
// compiler, optimisation or machine is noticed. After a change of behaviour,
// PACECAR_UPDATE_GOLDEN=1 writes the results anew.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "bench/sim/run.h"
#include "bench/sim/spec_file.h"
#include "tests/support/golden.h"

namespace pacecar::compiler_golden_test {
namespace {

struct Run {
  const char* name;
  const char* text;
};

void PrintTo(const Run& run, std::ostream* out) { *out << run.name; }

// Every algorithm, and every action of switches on packets.
constexpr Run kRuns[] = {
    {"pace_incast", R"(
[topology]
hosts = 16
[transport]
cc = "pace"
path_policy = "balanced"
[workload]
kind = "incast"
senders = 12
bytes = "150KB"
)"},
    {"pace_all_to_all_lost_words", R"(
[topology]
hosts = 16
[transport]
cc = "pace"
path_policy = "reroute"
[workload]
kind = "all_to_all"
parallel = 2
bytes = "100KB"
[[fault]]
kind = "word-loss"
probability = 0.1
)"},
    {"swift_incast_drops", R"(
[topology]
hosts = 16
[transport]
cc = "swift"
[fabric]
queue = "60KB"
[workload]
kind = "incast"
senders = 12
bytes = "150KB"
)"},
    {"dcqcn_permutation_pfc", R"(
[topology]
hosts = 16
[fabric]
buffer = "1MB"
pfc = true
ecn = {low = "20KB", high = "80KB", max_probability = 0.2}
[transport]
cc = "dcqcn"
paths = 1
[workload]
kind = "permutation"
bytes = "300KB"
)"},
    {"timely_incast_pfc", R"(
[topology]
kind = "star"
hosts = 12
[fabric]
buffer = "400KB"
pfc = {alpha = 0.25}
[transport]
cc = "timely"
[workload]
kind = "incast"
senders = 11
bytes = "200KB"
)"},
    {"hpcc_incast_telemetry", R"(
[topology]
hosts = 16
[transport]
cc = "hpcc"
paths = 1
[workload]
kind = "incast"
senders = 10
bytes = "200KB"
)"},
    {"powertcp_all_to_all_telemetry", R"(
[topology]
kind = "fat-tree"
radix = 4
[transport]
cc = "powertcp"
paths = 1
[workload]
kind = "all_to_all"
hosts = 8
bytes = "40KB"
)"},
    {"nscc_incast_trimming", R"(
[topology]
hosts = 16
rate = "400G"
[fabric]
trimming = true
ecn = {when = "dequeue"}
[transport]
cc = "nscc"
path_policy = "recycle"
reordering = "any"
timeout = "100us"
[workload]
kind = "incast"
senders = 12
bytes = "250KB"
)"},
    {"nscc_dual_port_drops_and_failure", R"(
[topology]
kind = "dual-port"
hosts = 8
hosts_per_leaf = 4
[fabric]
queue = "50KB"
failover = "20us"
[transport]
cc = "nscc"
path_policy = "penalty"
timeout = "150us"
[workload]
kind = "all_to_all"
bytes = "60KB"
[[fault]]
at = "10us"
kind = "cable-down"
cable = "leaf 0 > spine 0"
)"},
    {"rccc_all_to_all_trimming", R"(
[topology]
hosts = 16
rate = "400G"
[fabric]
queue = "30KB"
trimming = true
control_weight = 10
[transport]
cc = "rccc"
path_policy = "recycle"
ack_bytes = 16384
reordering = "any"
timeout = "100us"
[workload]
kind = "all_to_all"
hosts = 8
bytes = "100KB"
)"},
    {"rccc_incast_drops", R"(
[topology]
kind = "dumbbell"
left = 8
right = 4
[fabric]
queue = "80KB"
[transport]
cc = "rccc"
[workload]
kind = "incast"
senders = 8
bytes = "200KB"
)"},
    {"swift_all_reduce_lossy_cable", R"(
[topology]
hosts = 16
[transport]
cc = "swift"
[workload]
kind = "ring_all_reduce"
hosts = 6
bytes = "160KB"
[[fault]]
kind = "cable-loss"
cable = "host 3 > leaf 0"
probability = 0.02
)"},
    {"fixed_pairs_slow_cable", R"(
[topology]
kind = "rail"
servers = 4
gpus_per_server = 2
[transport]
cc = "fixed"
path_policy = "random"
[workload]
kind = "pairs"
bytes = "500KB"
[[fault]]
at = "20us"
kind = "cable-rate"
cable = "host 1 > leaf 1"
rate = "17G"
)"},
    {"swift_random_flows_frozen_host", R"(
[topology]
hosts = 16
[transport]
cc = "swift"
[workload]
kind = "random_flows"
sizes = "FB_Hadoop"
load = 0.5
length = "60us"
[[fault]]
at = "15us"
kind = "host-frozen"
host = 5
length = "40us"
)"},
};

std::string result_of(const Run& run) {
  const auto file = parse_spec(run.text, run.name);
  if (!file) return file.error().message;
  const auto spec = make_run_spec(*file->table(), "", /*seed=*/1);
  if (!spec) return spec.error().message;
  const auto result = run_experiment(*spec);
  if (!result) return result.error().message;
  std::string text = fmt::format(
      "trace {:016x}\nlargest queue {}\nlargest buffer {}\nmarked {} trimmed {} dropped {} pauses "
      "{}\nsent again {}\n",
      result->trace_hash, result->queue_max_bytes, result->switch_buffer_max_bytes,
      result->fabric.marked, result->fabric.trimmed, result->fabric.all_dropped(),
      result->fabric.pauses, result->nics.packets_retransmitted);
  for (const FlowResult& flow : result->flows) {
    text +=
        fmt::format("flow {} {} > {} {} B: {} to {} ns\n", flow.id, flow.source, flow.destination,
                    flow.bytes, flow.start.ns(), flow.done() ? flow.finish.ns() : -1);
  }
  return text;
}

class CompilerGolden : public ::testing::TestWithParam<Run> {};

TEST_P(CompilerGolden, RunMatchesTheStoredResult) {
  test::expect_golden(fmt::format("sim/{}.txt", GetParam().name), result_of(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(All, CompilerGolden, ::testing::ValuesIn(kRuns),
                         [](const auto& run) { return std::string(run.param.name); });

}  // namespace
}  // namespace pacecar::compiler_golden_test
