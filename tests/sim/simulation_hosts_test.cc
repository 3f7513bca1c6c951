// Whole runs with hosts that are late: [hosts] and its profiles.
#include <gmock/gmock.h>

#include <fstream>
#include <set>

#include "bench/sim/metrics.h"
#include "bench/sim/run.h"
#include "bench/sim/spec_file.h"
#include "bench/sim/spec_value.h"
#include "tests/support/scratch_directory.h"
#include "transport/io/packet_io.h"

namespace pacecar::simulation_hosts_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Result<RunSpec> spec_or_error(const std::string& hosts, const std::string& more = "") {
  const auto file = parse_spec(
      "[topology]\nkind = \"star\"\nhosts = 5\nrate = \"10G\"\n[fabric]\nqueue = \"100KB\"\n"
      "[workload]\nkind = \"incast\"\nbytes = \"300KB\"\noperations = 3\nslice = \"128KB\"\n" +
          more + "[hosts]\n" + hosts,
      "test.toml");
  if (!file) return tl::unexpected(file.error());
  return make_run_spec(*file->table(), "", 1);
}

RunSpec spec_of(const std::string& model, const std::string& more = "") {
  auto spec = spec_or_error("model = \"" + model + "\"\n", more);
  EXPECT_TRUE(spec.has_value()) << spec.error().message;
  return spec.value_or(RunSpec{});
}

RunResult run_of(const RunSpec& spec) {
  auto result = run_experiment(spec);
  EXPECT_TRUE(result.has_value()) << result.error().message;
  return result.value_or(RunResult{});
}

double metric(const RunResult& run, std::string_view name) {
  const auto value = metric_value(run, name);
  EXPECT_TRUE(value.has_value()) << value.error().message;
  return value.value_or(0);
}

// A profile that is never late but for `keys`.
std::string profile_of(const std::string& keys) {
  const auto missing = [&keys](const std::string& line) {
    return keys.find(line.substr(0, line.find(' '))) == std::string::npos ? line + "\n" : "";
  };
  return missing("percent = [0, 100]") + missing("wake_us = [0, 0]") +
         missing("pause_us = [0, 0]") + keys;
}

class HostProfiles : public testing::Test {
 protected:
  std::string file_of(const std::string& text) {
    const std::string name = (directory_.path() / "own.toml").string();
    std::ofstream(name) << text;
    return name;
  }
  std::string error_of(const std::string& profile) {
    const auto spec = spec_or_error("model = \"" + file_of(profile) + "\"\n");
    return spec ? "it was read" : spec.error().message;
  }

  test::ScratchDirectory directory_;
};

TEST_F(HostProfiles, EqualSeedsGiveEqualRunsAndAnotherSeedAnother) {
  for (const char* model : {"udp", "dpdk", "verbs"}) {
    RunSpec spec = spec_of(model);
    const RunResult once = run_of(spec);
    EXPECT_TRUE(once.complete) << model;
    EXPECT_EQ(run_of(spec).trace_hash, once.trace_hash) << model;
    spec.seed = 2;
    EXPECT_NE(run_of(spec).trace_hash, once.trace_hash) << model;
  }
}

TEST_F(HostProfiles, NamedModelsDiffer) {
  std::set<uint64_t> hashes;
  for (const char* model : {"ideal", "udp", "dpdk", "verbs"}) {
    hashes.insert(run_of(spec_of(model)).trace_hash);
  }
  EXPECT_EQ(hashes.size(), 4U);
}

TEST_F(HostProfiles, WithoutHostsTheyAreIdeal) {
  auto bare = spec_of("ideal");
  EXPECT_TRUE(bare.hosts.ideal());
  EXPECT_EQ(bare.fabric.hosts.jitter, Duration());
  EXPECT_TRUE(bare.transport.knows_base_rtt);
}

// Congestion controls hear of their host from its packet I/O, as in an engine.
TEST_F(HostProfiles, LateHostsAreToldWhatRealOnesAreTold) {
  const RunSpec udp = spec_of("udp");
  EXPECT_EQ(udp.fabric.hosts.jitter, kHostJitter);
  EXPECT_EQ(udp.fabric.hosts.pause, kHostPause);
  EXPECT_FALSE(udp.transport.knows_base_rtt);
  EXPECT_FALSE(udp.transport.receives_posted);
  EXPECT_GT(udp.transport.burst, 10 * udp.transport.mtu);
  EXPECT_EQ(spec_of("dpdk").transport.burst, udp.transport.mtu);
  EXPECT_TRUE(spec_of("udp", "[transport]\nbase_rtt = \"20us\"\n").transport.knows_base_rtt);
  EXPECT_EQ(spec_of("udp", "[transport]\nburst = 4096\n").transport.burst, 4096U);
}

TEST_F(HostProfiles, EveryPartOfAProfileTakesItsTime) {
  const double least = metric(run_of(spec_of(file_of(profile_of("")))), "finish_us");
  for (const char* part :
       {"wake_us = [50, 50]", "packet_us = 5", "turn_us = 20", "message_us = 500", "stack_us = 50",
        "pauses_per_second = 100000\npause_us = [300, 300]\nturn_us = 2"}) {
    const double with = metric(run_of(spec_of(file_of(profile_of(part)))), "finish_us");
    EXPECT_GT(with, least + 50) << part;
  }
}

TEST_F(HostProfiles, OperationsAreTimedWithoutTheirPauses) {
  const RunResult quick = run_of(spec_of("ideal"));
  const RunResult slow = run_of(spec_of("ideal", "pause = \"50ms\"\n"));
  EXPECT_GT(metric(slow, "finish_us"), metric(quick, "finish_us") + 2 * 50'000);
  EXPECT_NEAR(metric(slow, "operation_mean_us"), metric(quick, "operation_mean_us"), 100);
  EXPECT_LE(metric(quick, "operation_p50_us"), metric(quick, "operation_p99_us"));
  EXPECT_LT(metric(quick, "operation_p99_us"), metric(quick, "finish_us") / 2);
}

TEST_F(HostProfiles, MistakesGetASentence) {
  EXPECT_THAT(spec_or_error("model = \"fast\"\n").error().message,
              AllOf(HasSubstr("'fast'"), HasSubstr("write ideal, udp, dpdk, verbs or")));
  EXPECT_THAT(spec_or_error("model = \"none.toml\"\n").error().message, HasSubstr("none.toml"));
  EXPECT_THAT(error_of(profile_of("pace_us = 3")), HasSubstr("no key 'pace_us'"));
  EXPECT_THAT(error_of(profile_of("percent = [0, 50]")), HasSubstr("from 0 to 100"));
  EXPECT_THAT(error_of(profile_of("percent = [0, 70, 50, 100]")), HasSubstr("ascends"));
  EXPECT_THAT(error_of(profile_of("wake_us = [1, 2, 3]")),
              HasSubstr("wake_us has 3 values, and percent has 2: give as many"));
  EXPECT_THAT(error_of(profile_of("wake_us = [5, 2]")), HasSubstr("ascends"));
  EXPECT_THAT(error_of(profile_of("packet_us = -1")), HasSubstr("packet_us"));
  EXPECT_THAT(error_of(""), HasSubstr("percent"));
}

}  // namespace
}  // namespace pacecar::simulation_hosts_test
