// Whole runs over links of different rates, policed links, and links whose rates change.
#include <gmock/gmock.h>

#include <algorithm>
#include <vector>

#include "bench/sim/metrics.h"
#include "bench/sim/run.h"
#include "bench/sim/spec_file.h"

namespace pacecar::simulation_links_test {
namespace {

using testing::HasSubstr;

const std::string kHosts = "[topology]\nhosts = 16\nrate = \"400G\"\n";
const std::string kSwift = "[transport]\ncc = \"swift\"\n";

Result<RunSpec> try_spec(const std::string& text) {
  return make_run_spec(*parse_spec(text, "x.toml")->table(), "");
}

RunResult run_of(const std::string& text) {
  const auto spec = try_spec(text);
  EXPECT_TRUE(spec.has_value()) << spec.error().message;
  auto result = run_experiment(spec.value());
  EXPECT_TRUE(result.has_value()) << result.error().message;
  return result.value_or(RunResult{});
}

double figure(const RunResult& run, std::string_view name) {
  return metric_value(run, name).value();
}

TEST(SimulationSlowHosts, SlowHostsAreSpreadEvenlyOrListed) {
  const Topology half = try_spec(kHosts + "slow_hosts = 8\nslow_rate = \"100G\"\n")->topology;
  for (const Cable& cable : half.cables) {
    const bool slow = cable.a < 16 && cable.a % 2 == 1;
    EXPECT_EQ(cable.rate, Rate::from_gbps(slow ? 100 : 400));
  }
  const Topology two = try_spec(kHosts + "slow_hosts = [0, 5]\nslow_rate = \"25G\"\n")->topology;
  for (const Cable& cable : two.cables) {
    EXPECT_EQ(cable.rate, Rate::from_gbps(cable.a == 0 || cable.a == 5 ? 25 : 400));
  }
  EXPECT_THAT(try_spec(kHosts + "slow_hosts = 8\n").error().message,
              HasSubstr("goes with slow_rate"));
  EXPECT_THAT(try_spec(kHosts + "slow_hosts = [16]\nslow_rate = \"1G\"\n").error().message,
              HasSubstr("a list of whole numbers from 0 to 15"));
}

// Two leaves with one uplink each. Flows between the leaves learn a low core limit, which must not
// slow down the flows within a leaf that follow on the same NICs.
TEST(SimulationNarrowCore, CoreLimitDoesNotSlowFlowsWithinALeaf) {
  const RunResult run = run_of(
      "[topology]\nkind = \"leaf-spine\"\nhosts = 8\nhosts_per_leaf = 4\nspines = 1\n"
      "rate = \"400G\"\ndelay = \"2us\"\n"
      "[workload]\nkind = \"hierarchical_all_reduce\"\nhosts_per_server = 4\n"
      "bytes = \"9500KB\"\n");
  std::vector<double> local;
  for (const FlowResult& flow : run.flows) {
    if (flow.source / 4 == flow.destination / 4) {
      local.push_back((flow.finish - flow.start).seconds() / flow.ideal.seconds());
    }
  }
  ASSERT_EQ(local.size(), 48U);
  std::sort(local.begin(), local.end());
  EXPECT_LT(local[39], 1.2) << "all flows but those of one step";
  EXPECT_LT(local.back(), 1.4) << "the slowest flow";
}

// Three senders, one of them slow: it gets all of its own link, the others divide the rest.
TEST(SimulationSlowHosts, SlowAndFastHostsShareByMaxMin) {
  const RunResult run = run_of(kHosts + "slow_hosts = [5]\nslow_rate = \"50G\"\n" + kSwift +
                               "[workload]\nkind = \"incast\"\nhosts = [0, 4, 5, 6]\n"
                               "bytes = \"8MB\"\n");
  ASSERT_EQ(run.flows.size(), 3U);
  const double payload = 4096.0 / (4096 + 120);
  for (const FlowResult& flow : run.flows) {
    const double expected = (flow.source == 5 ? 50e9 : 175e9) * payload;
    EXPECT_NEAR(flow.share.fair_rate, expected, 0.02 * expected) << flow.source;
  }
  // The slow host's link determines the least time.
  EXPECT_GE(figure(run, "finish_ratio"), 1.0);
  EXPECT_NEAR(figure(run, "finish_us") / figure(run, "finish_ratio"),
              8e6 * 8 / 50e9 / payload * 1e6, 20);
}

TEST(SimulationPolicers, PolicerRateCountsAsLinkRate) {
  const std::string pairs = "[workload]\nkind = \"pairs\"\nhosts = [0, 15]\nbytes = \"8MB\"\n";
  for (const std::string at : {"uplinks", "downlinks", "host 0 > leaf 0", "leaf 3 > host 15"}) {
    const RunResult run =
        run_of(kHosts + pairs + "[transport]\ncc = \"fixed\"\nline_rate = \"99G\"\n" +
               "[fabric]\npolicer = {rate = \"100G\", burst = \"64KB\", at = \"" + at + "\"}\n");
    EXPECT_TRUE(run.complete);
    EXPECT_EQ(figure(run, "policed"), 0) << at;
    EXPECT_NEAR(figure(run, "finish_ratio"), 1.0, 0.03) << at;
    EXPECT_NEAR(run.flows[0].ideal.us(), 8e6 * 8 / 100e9 * 1e6, 40) << at;
  }
  const RunResult fast = run_of(kHosts + pairs + "[transport]\ncc = \"swift\"\n" +
                                "[fabric]\npolicer = [{rate = \"100G\", burst = \"64KB\"}]\n");
  EXPECT_GT(figure(fast, "policed"), 0);
  EXPECT_EQ(figure(fast, "policed"), figure(fast, "drops_all"));
  EXPECT_EQ(figure(fast, "drops"), 0);
  EXPECT_GE(figure(fast, "finish_ratio"), 0.99);  // the burst passes faster
}

TEST(SimulationPolicers, WrongPolicersAreRefused) {
  const auto complaint = [](const std::string& policer) {
    const auto spec = try_spec(kHosts + "[fabric]\npolicer = " + policer + "\n");
    return spec ? std::string() : spec.error().message;
  };
  EXPECT_THAT(complaint("true"), HasSubstr("takes a table such as"));
  EXPECT_THAT(complaint("{rate = \"1G\"}"), HasSubstr("burst is missing or 0"));
  EXPECT_THAT(complaint("{burst = \"64KB\"}"), HasSubstr("rate is missing or 0"));
  EXPECT_THAT(complaint("{rate = \"1G\", burst = 9000, at = \"everywhere\"}"),
              HasSubstr("neither uplinks nor downlinks"));
  EXPECT_THAT(complaint("{rate = \"1G\", burst = 9000, where = \"x\"}"), HasSubstr("where"));
}

// The utilisation of a cable is relative to its rate at each time.
TEST(SimulationRateChanges, RateChangesCountInTheUtilisation) {
  const RunResult run = run_of(
      "[topology]\nkind = \"star\"\nhosts = 2\nrate = \"100G\"\n"
      "[workload]\nkind = \"pairs\"\nbytes = \"10MB\"\n"
      "[transport]\ncc = \"fixed\"\n[fabric]\nqueue = \"100MB\"\n"
      "[[fault]]\nat = \"100us\"\nkind = \"cable-rate\"\ncable = 0\nrate = \"25G\"\n"
      "[[fault]]\nat = \"500us\"\nkind = \"cable-rate\"\ncable = 0\nrate = \"200G\"\n");
  EXPECT_TRUE(run.complete);
  // 10 MB of 1.25 MB in 100 us, 1.25 MB in 400 us, and 15 MB in 600 us at 200 Gb/s, at which the
  // host still sends at 100 Gb/s.
  EXPECT_NEAR(run.links[0].utilisation, 10e6 / 17.5e6, 0.03);
  EXPECT_LE(figure(run, "utilisation_max"), 1.0);
}

// Two leaves of eight hosts, whose uplinks have a quarter of the rate of the host links.
TEST(SimulationOversubscription, KnownOversubscriptionReducesTrimmingInTheCore) {
  const auto run = [](const std::string& workload, const std::string& parameter) {
    return run_of(
        "[topology]\nhosts = 16\nhosts_per_leaf = 8\nrate = \"400G\"\nspines = 2\n"
        "[fabric]\ntrimming = true\necn.host_links = false\n" +
        workload + "[transport]\ncc = \"rccc\"\n" + parameter);
  };
  const std::string across =
      "[workload]\nkind = \"pairs\"\nbytes = \"2MB\"\n"
      "hosts = [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15]\n";
  const RunResult unaware = run(across, "");
  const RunResult aware = run(across, "oversubscription = 4\n");
  EXPECT_GT(aware.nics.trimmed_in_core, 0U) << "in the first round trip";
  EXPECT_EQ(aware.nics.trimmed_in_core, aware.nics.trimmed_packets);
  EXPECT_LT(4 * aware.nics.trimmed_packets, unaware.nics.trimmed_packets);
  EXPECT_LT(figure(aware, "finish_us"), 1.05 * figure(unaware, "finish_us"));
  const std::string under_one_leaf =
      "[workload]\nkind = \"incast\"\nbytes = \"1MB\"\nhosts = [0, 1, 2, 3]\n";
  const RunResult incast = run(under_one_leaf, "oversubscription = 4\n");
  EXPECT_GT(incast.nics.trimmed_packets, 0U);
  EXPECT_EQ(incast.nics.trimmed_in_core, 0U);
}

// Credit is granted four packets at a time, so more than forty words are in flight at once.
TEST(SimulationCredit, CreditWordsKeepUpWithAFastLink) {
  const RunResult run = run_of(
      "[topology]\nhosts = 16\nrate = \"800G\"\n"
      "[workload]\nkind = \"pairs\"\nbytes = \"2MB\"\nhosts = [0, 15]\n"
      "[transport]\ncc = \"rccc\"\n");
  EXPECT_LT(figure(run, "finish_ratio"), 1.03);
}

}  // namespace
}  // namespace pacecar::simulation_links_test
