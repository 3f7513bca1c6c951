// Experiment files: their values, merging, and the error for every mistake.
#include <gmock/gmock.h>

#include "bench/sim/spec_file.h"
#include "bench/sim/spec_reader.h"
#include "bench/sim/spec_value.h"
#include "bench/sim/summary.h"
#include "transport/softnic/paths/path_selector.h"

namespace pacecar::spec_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Result<RunSpec> spec_of(const std::string& text) {
  const auto file = parse_spec(text, "x.toml");
  if (!file) return tl::unexpected(file.error());
  return make_run_spec(*file->table(), "");
}

// The error of a file; empty when there is none.
std::string error_of(const std::string& text) {
  const auto spec = spec_of(text);
  return spec ? std::string() : spec.error().message;
}

SpecTable table_of(const std::string& text) { return *parse_spec(text, "x.toml")->table(); }

TEST(SimulationSpec, EmptyFileGivesTheDefaultExperiment) {
  const auto spec = spec_of("");
  ASSERT_TRUE(spec.has_value()) << spec.error().message;
  EXPECT_EQ(spec->topology.hosts, 128U);
  EXPECT_FALSE(spec->workload.flows.empty());
  EXPECT_EQ(spec->transport.congestion_control, "pace");
  EXPECT_GT(spec->fabric.switches.queue_bytes, 0U);
  EXPECT_EQ(spec->seed, 1U);
}

// The TOML library of Debian 12 asserts that a table has a name.
TEST(SimulationSpec, TableWithoutANameIsAnError) {
  for (const char* text : {"[.a]", "[=]", "[ #]", "[run]\n[#", "[[.]]"}) {
    EXPECT_THAT(error_of(text), HasSubstr("not valid TOML")) << text;
  }
}

// The TOML library of Debian 12 also asserts that no such letter stands where a blank may stand.
TEST(SimulationSpec, LetterBeyondAsciiIsAnError) {
  for (const char* text : {"\u00E9 = 1", "a = \u00E9", "[\u00E9]", "[run]\nseed = 1 \u00E9"}) {
    EXPECT_THAT(error_of(text), HasSubstr("not valid TOML")) << text;
  }
  EXPECT_EQ(error_of("# \u00E9\n[run]\nseed = 1"), "");
}

TEST(SimulationSpec, ReadsEveryTable) {
  const auto spec = spec_of(R"(
[topology]
kind = "leaf-spine"
hosts = 8
hosts_per_leaf = 4
spines = 2
rate = "400G"
delay = "500ns"
[fabric]
queue = "417KB"
buffer = "16MiB"
ecn = {kind = "step", low = 100000, when = "dequeue", host_links = false}
trimming = true
overhead = 20
[workload]
kind = "incast"
senders = 3
bytes = "1MB"
start = 2000
[transport]
cc = "fixed"
mtu = 4086
paths = 1
path_policy = "fixed"
reordering = "any"
ack_bytes = "16KiB"
[[fault]]
at = "5us"
kind = "host-frozen"
host = 1
length = "10us"
[[fault]]
at = "1us"
kind = "cable-rate"
cable = "leaf 0 > spine 1"
rate = "100G"
[run]
seed = 7
time_limit = "20ms"
)");
  ASSERT_TRUE(spec.has_value()) << spec.error().message;
  EXPECT_EQ(spec->topology.hosts, 8U);
  EXPECT_EQ(spec->topology.cables[0].rate, Rate::from_gbps(400));
  EXPECT_EQ(spec->topology.cables[0].delay, Duration::from_ns(500));
  EXPECT_EQ(spec->fabric.switches.queue_bytes, 417'000U);
  EXPECT_EQ(spec->fabric.switches.buffer_bytes, 16U << 20);
  EXPECT_EQ(spec->fabric.switches.ecn.kind, EcnConfig::Kind::kStep);
  EXPECT_EQ(spec->fabric.switches.ecn.when, EcnConfig::When::kDequeue);
  EXPECT_EQ(spec->fabric.switches.ecn.low, 100'000U);
  EXPECT_FALSE(spec->fabric.switches.ecn.host_links);
  EXPECT_TRUE(spec->fabric.switches.trimming);
  EXPECT_EQ(spec->fabric.hosts.overhead_bytes, 20U);
  ASSERT_EQ(spec->workload.flows.size(), 3U);
  EXPECT_EQ(spec->workload.flows[0].bytes, 1'000'000U);
  EXPECT_EQ(spec->workload.flows[0].start, Duration::from_us(2));
  EXPECT_EQ(spec->transport.congestion_control, "fixed");
  EXPECT_EQ(spec->transport.path_policy, PathPolicy::kFixed);
  EXPECT_EQ(spec->transport.reordering, Duration::max());
  EXPECT_EQ(spec->transport.ack_bytes, 16384U);
  ASSERT_EQ(spec->faults.size(), 2U);
  EXPECT_EQ(spec->faults[0].kind, FaultKind::kCableRate);  // sorted by time
  EXPECT_EQ(spec->faults[0].rate, Rate::from_gbps(100));
  EXPECT_EQ(spec->faults[1].target, 1U);
  EXPECT_EQ(spec->seed, 7U);
  EXPECT_EQ(spec->time_limit, Duration::from_ms(20));
}

// The reference network has a round trip of 8.34 us and 417 KB in flight.
TEST(SimulationSpec, BdpUnitIsTheBandwidthDelayProduct) {
  const std::string reference = R"(
[topology]
hosts = 128
rate = "400G"
[transport]
mtu = 4086
[fabric]
overhead = 20
)";
  const auto spec =
      spec_of(reference + "queue = \"1bdp\"\necn = {low = \"0.5bdp\", high = \"1bdp\"}");
  ASSERT_TRUE(spec.has_value()) << spec.error().message;
  EXPECT_NEAR(static_cast<double>(spec->transport.base_rtt.ns()), 8337, 10);
  EXPECT_NEAR(static_cast<double>(spec->fabric.switches.queue_bytes), 416'856, 500);
  EXPECT_NEAR(static_cast<double>(spec->fabric.switches.ecn.low), 208'428, 300);
}

TEST(SimulationSpec, PfcBoundsTheBufferAndNotTheQueues) {
  const auto spec = spec_of("[fabric]\nbuffer = \"16MiB\"\npfc = {alpha = 0.25}");
  ASSERT_TRUE(spec.has_value()) << spec.error().message;
  EXPECT_TRUE(spec->fabric.switches.pfc.enabled);
  EXPECT_EQ(spec->fabric.switches.pfc.alpha, 0.25);
  EXPECT_EQ(spec->fabric.switches.queue_bytes, 0U);
}

// The defaults: queues of five bandwidth-delay products, 64 paths.
TEST(SimulationSpec, ReorderingLimitFollowsFromTheQueues) {
  const auto reordering = [](const std::string& text) {
    const auto spec = spec_of(text);
    EXPECT_TRUE(spec.has_value()) << spec.error().message;
    return static_cast<double>(spec->transport.reordering.ns()) /
           static_cast<double>(spec->transport.base_rtt.ns());
  };
  EXPECT_NEAR(reordering(""), 3.5, 0.01);
  EXPECT_NEAR(reordering("[fabric]\ntrimming = true"), 1.5, 0.01);
  EXPECT_NEAR(reordering("[fabric]\nqueue = \"2bdp\""), 2, 0.01);
  EXPECT_EQ(reordering("[transport]\npaths = 1"), 0) << "one path keeps the order";
  EXPECT_EQ(reordering("[transport]\npath_policy = \"fixed\""), 0);
  EXPECT_EQ(reordering("[topology]\nkind = \"star\""), 0) << "a star has one path";
  EXPECT_EQ(spec_of("[transport]\nreordering = \"7us\"")->transport.reordering,
            Duration::from_us(7));
}

TEST(SimulationSpec, TextShowsTheValuesOfDefaults) {
  const std::string text = fabric_text(*spec_of("[fabric]\nqueue = \"50KB\"\ntrimming = true"));
  for (const char* part : {"128 hosts (ideal) at 100 Gb/s", "round trip 9.3", "(bdp 11",
                           "queues of 50 KB", "trimming", "64 paths\n"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(fabric_text(*spec_of("[transport]\npath_policy = \"fixed\"")),
              HasSubstr(", one path\n"));
}

TEST(SimulationSpec, TelemetryIsOnForAlgorithmsThatReadIt) {
  const auto telemetry = [](const std::string& text) {
    const auto spec = spec_of(text);
    EXPECT_TRUE(spec.has_value()) << spec.error().message;
    return spec->fabric.switches.telemetry;
  };
  EXPECT_FALSE(telemetry(""));
  EXPECT_TRUE(telemetry("[transport]\ncc = \"hpcc\""));
  EXPECT_TRUE(telemetry("[workload]\nkind = \"pairs\"\ncc = \"powertcp\""));
  EXPECT_FALSE(telemetry("[transport]\ncc = \"hpcc\"\n[fabric]\ntelemetry = false"));
}

TEST(SimulationSpec, BurstIsRoundedDownToWholePackets) {
  const auto burst = [](const std::string& text) {
    const auto spec = spec_of("[transport]\nmtu = 1000\n" + text);
    EXPECT_TRUE(spec.has_value()) << spec.error().message;
    return spec->transport.burst;
  };
  EXPECT_EQ(burst(""), 1000U);
  EXPECT_EQ(burst("burst = 300"), 1000U);
  EXPECT_EQ(burst("burst = \"4500\""), 4000U);
}

constexpr const char* kTwoTenants = R"(
[transport]
cc = "rccc"
[[workload.job]]
kind = "pairs"
hosts = [0, 2]
[[workload.job]]
kind = "pairs"
hosts = [1, 2]
weight = 3
)";

TEST(SimulationSpec, HostMayReceiveFromAnAlgorithmWithoutAnAllocator) {
  const auto spec = spec_of(std::string(kTwoTenants) + "cc = \"swift\"");
  ASSERT_TRUE(spec.has_value()) << spec.error().message;
  const auto algorithms = algorithms_of(*spec);
  ASSERT_TRUE(algorithms.has_value()) << algorithms.error().message;
  EXPECT_EQ(algorithms->controls[0], "rccc");
  EXPECT_EQ(algorithms->controls[1], "swift");
  EXPECT_EQ(algorithms->allocators[2], "credit");
  EXPECT_EQ(algorithms->weights[0], 1U);
  EXPECT_EQ(algorithms->weights[1], 3U);
}

TEST(SimulationSpec, SeedOfTheCallerOverridesTheFile) {
  const auto file = parse_spec("[run]\nseed = 3", "x.toml");
  EXPECT_EQ(make_run_spec(*file->table(), "", 9)->seed, 9U);
}

struct Mistake {
  std::string text;
  std::vector<std::string> parts;  // each is part of the error
};

class SimulationSpecMistake : public testing::TestWithParam<Mistake> {};

TEST_P(SimulationSpecMistake, GivesAnErrorOfOneLine) {
  const std::string error = error_of(GetParam().text);
  for (const std::string& part : GetParam().parts) EXPECT_THAT(error, HasSubstr(part));
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
}

INSTANTIATE_TEST_SUITE_P(
    All, SimulationSpecMistake,
    testing::Values(
        Mistake{"[topology\n", {"x.toml, line 1", "TOML"}},
        Mistake{"\n[fabrik]\n", {"x.toml, line 2", "[fabrik]", "did you mean 'fabric'?"}},
        Mistake{"topology = 3", {"line 1", "a whole number", "[topology]"}},
        Mistake{"[fault]\nat = 1", {"fault", "[[fault]]"}},
        Mistake{"[topology]\nkind = \"leaf-spime\"", {"line 2", "did you mean 'leaf-spine'?"}},
        Mistake{"[topology]\n\nhosts_per_leav = 4",
                {"line 3", "no key 'hosts_per_leav'", "did you mean 'hosts_per_leaf'?", "spines"}},
        Mistake{"[topology]\nhosts = \"many\"", {"line 2", "hosts is \"many\"", "whole number"}},
        Mistake{"[topology]\nhosts = -1", {"hosts is -1"}},
        Mistake{"[topology]\nhosts = 0", {"hosts is 0", "from 1"}},
        Mistake{"[topology]\nrate = \"400G\"\nhosts = 1", {"defaults: [workload]", "2"}},
        Mistake{"[topology]\nrate = \"400\"", {"line 2", "a rate with its unit such as 400G"}},
        Mistake{"[topology]\nrate = 400", {"line 2", "a rate with its unit such as 400G"}},
        Mistake{"[topology]\nrate = \"fast\"", {"rate is \"fast\"", "400G"}},
        Mistake{"[topology]\ndelay = \"1 lightyear\"", {"delay", "500ns"}},
        Mistake{"[topology]\nhosts = 10\nhosts_per_leaf = 4", {"x.toml", "[topology]", "10"}},
        Mistake{"[topology]\nfile = \"nowhere.topo\"",
                {"x.toml, line 1", "[topology]", "nowhere.topo"}},
        Mistake{"[topology]\nfile = \"a.topo\"\nhosts = 4", {"line 3", "no key 'hosts'"}},
        Mistake{"[fabric]\nqueue = \"4l7KB\"", {"line 2", "[fabric] queue is \"4l7KB\"", "1bdp"}},
        Mistake{"[fabric]\nqueue = 1.5", {"queue is 1.5", "bytes"}},
        Mistake{"[fabric]\nquue = 1", {"no key 'quue'", "did you mean 'queue'?"}},
        Mistake{"[fabric]\ntrimming = 1", {"trimming is 1", "true or false"}},
        Mistake{"[fabric]\necn = \"yes\"", {"ecn", "true, false, or a table"}},
        Mistake{"[fabric]\necn = {kind = \"blue\"}", {"ecn kind is \"blue\"", "off, step, red"}},
        Mistake{"[fabric]\necn = {low = 9000, high = 5000}", {"high is below low"}},
        Mistake{"[fabric]\necn = {max_probability = 2}", {"max_probability is 2", "from 0 to 1"}},
        Mistake{"[fabric]\necn = {hihg = 5}", {"no key 'hihg'", "did you mean 'high'?"}},
        Mistake{"[fabric]\npfc = true", {"pfc", "buffer"}},
        Mistake{"[fabric]\nbuffer = \"1MiB\"\npfc = true\ntrimming = true",
                {"line 3", "pfc loses nothing"}},
        Mistake{"[fabric]\nqueue = 0", {"line 2", "queue is 0"}},
        Mistake{"[fabric]\nqueue = 100", {"line 2", "queue is 100", "a full packet"}},
        Mistake{"[fabric]\ninbox = 100", {"line 2", "inbox", "a full packet"}},
        Mistake{"[fabric]\npackets = 1", {"packets is 1"}},
        Mistake{"[workload]\nkind = \"incst\"",
                {"line 2", "did you mean 'incast'?", "permutation"}},
        Mistake{"[workload]\nkind = \"incast\"\nparallel = 4",
                {"line 3", "no key 'parallel'", "senders"}},
        Mistake{"[workload]\nkind = \"incast\"\nsenders = 500", {"x.toml", "[workload]"}},
        Mistake{"[workload]\nkind = \"random_flows\"\nload = 3", {"load is 3", "0.001 to 1"}},
        Mistake{"[workload]\nkind = \"random_flows\"\nsizes = \"WebSerch\"",
                {"x.toml", "WebSerch"}},
        Mistake{"[workload]\nhosts = [0, 200]", {"hosts", "from 0 to 127"}},
        Mistake{"[workload]\nkind = \"mixture\"", {"[[workload.job]]"}},
        Mistake{"[[workload.job]]\ncc = \"cubic\"", {"line 2", "cc is \"cubic\"", "swift"}},
        Mistake{"[workload]\nname = 3\n[[workload.job]]\ncc = \"cubic\"", {"line 2", "name is 3"}},
        Mistake{"[workload]\njob = [3]", {"line 2", "no list of tables", "[[workload.job]]"}},
        Mistake{"fault = [{kind = \"word-loss\"},\n1]",
                {"line 2", "no list of tables", "[[fault]]"}},
        Mistake{"[workload]\nname = \"two\"\n[[workload.job]]\n[[workload.job]]\ncc = \"nscc\"",
                {"x.toml, line 1", "both 'pace' and 'nscc'"}},
        Mistake{"[[workload.job]]\n[[workload.job]]\nweight = 2",
                {"both weight 1 and weight 2", "its own sending hosts"}},
        Mistake{"[workload]\nweight = 0", {"weight is 0", "from 1 to 64"}},
        Mistake{"[[fault]]\nkind = \"word-loss\"\nhost = 128", {"host is 128", "127"}},
        Mistake{"[[fault]]\nkind = \"word-loss\"\nprobability = 2", {"probability is 2"}},
        Mistake{"[[fault]]\nkind = \"packet-loss\"\nprobability = 2", {"probability is 2"}},
        Mistake{"[[fault]]\nkind = \"packet-loss\"\ncable = 0", {"no key 'cable'"}},
        Mistake{"[transport]\nburst = \"1MB\"", {"burst", "64 packets"}},
        Mistake{"[workload]\nfile = \"nowhere.cm\"",
                {"x.toml, line 1", "[workload]", "nowhere.cm"}},
        Mistake{"[transport]\ncc = \"swfit\"", {"line 2", "did you mean 'swift'?"}},
        Mistake{"[transport]\nallocator = \"fair\"", {"allocator is \"fair\"", "credit"}},
        Mistake{"[transport]\nmtu = 9", {"mtu", "256"}},
        Mistake{"[transport]\nmtu = 0", {"mtu", "256"}},
        Mistake{"[transport]\npaths = 0", {"paths is 0", "from 1"}},
        Mistake{"[transport]\nwindow = 64", {"no key 'window'", "window_packets"}},
        Mistake{"[[fault]]\nat = \"1us\"", {"kind is missing", "cable-down"}},
        Mistake{"[[fault]]\nkind = \"cable-cut\"", {"cable-cut", "cable-down"}},
        Mistake{"[[fault]]\nkind = \"cable-down\"", {"cable is missing"}},
        Mistake{"[[fault]]\nkind = \"cable-down\"\ncable = 99999", {"line 3", "cable is 99999"}},
        Mistake{"[[fault]]\nkind = \"cable-down\"\ncable = \"leaf 0 > laef 1\"",
                {"no node 'laef 1'", "did you mean 'leaf 1'?"}},
        Mistake{"[[fault]]\nkind = \"cable-down\"\ncable = \"host 0 > host 1\"", {"neighbours"}},
        Mistake{"[[fault]]\nkind = \"cable-rate\"\ncable = 0", {"rate", "cable-down"}},
        Mistake{"[[fault]]\nkind = \"cable-loss\"\ncable = 0\nprobability = 1.5", {"from 0 to 1"}},
        Mistake{"[[fault]]\nkind = \"host-frozen\"\nhost = 128", {"host is 128", "127"}},
        Mistake{"[run]\ntime_limit = \"0s\"", {"time_limit", "nothing would run"}},
        Mistake{"[run]\ntimelimit = \"1s\"", {"did you mean 'time_limit'?"}},
        Mistake{"[run]\nseed = \"dice\"", {"seed is \"dice\""}},
        Mistake{"[run]\nname = 2026-01-01", {"line 2", "quotes"}},
        Mistake{"[run]\npcap = \"a.pcap\"", {"pcap_link"}},
        Mistake{"[run]\npcap = \"a.pcap\"\npcap_link = \"leaf 0\"", {"leaf 0 > host 3"}}));

TEST(SimulationSpec, UnreadableFileIsNamed) {
  const auto spec = read_spec("/nowhere/x.toml");
  ASSERT_FALSE(spec.has_value());
  EXPECT_THAT(spec.error().message, HasSubstr("/nowhere/x.toml"));
  EXPECT_THAT(read_spec("/").error().message, HasSubstr("not a folder"));
}

TEST(SimulationSpec, MergeIsDeepAndKeepsLineNumbers) {
  SpecTable base = table_of("[fabric]\nqueue = 10000\necn = {low = 1, high = 2}\n[run]\nseed = 1");
  const auto top = parse_spec("\n\n[fabric]\necn = {high = 9}\ntriming = true", "top.toml");
  merge_spec(base, *top->table());
  const SpecTable& fabric = *base.find("fabric")->table();
  EXPECT_EQ(to_text(*fabric.find("ecn")), "{low = 1, high = 9}");
  EXPECT_EQ(to_text(*fabric.find("queue")), "10000");
  const auto spec = make_run_spec(base, "");
  ASSERT_FALSE(spec.has_value());
  EXPECT_THAT(spec.error().message, AllOf(HasSubstr("top.toml, line 5"), HasSubstr("trimming")));
}

TEST(SimulationSpec, MergeOfAnotherKindReplacesTheTable) {
  SpecTable base = table_of("[workload]\nkind = \"incast\"\nsenders = 4\nbytes = 10");
  merge_spec(base, table_of("[workload]\nkind = \"permutation\"\nbytes = 20"));
  EXPECT_EQ(to_text(*base.find("workload")), "{kind = \"permutation\", bytes = 20}");
  merge_spec(base, table_of("[workload]\nkind = \"permutation\"\nshuffle = true"));
  EXPECT_EQ(to_text(*base.find("workload")),
            "{kind = \"permutation\", bytes = 20, shuffle = true}");
}

TEST(SimulationSpec, AFirstKindKeepsTheKeysOfOtherFiles) {
  SpecTable base = table_of("[topology]\nhosts = 64");
  merge_spec(base, table_of("[topology]\nkind = \"star\""));
  EXPECT_EQ(to_text(*base.find("topology")), "{hosts = 64, kind = \"star\"}");
  merge_spec(base, table_of("[topology]\nfile = \"a.topo\""));
  EXPECT_EQ(to_text(*base.find("topology")), "{file = \"a.topo\"}");
}

TEST(SimulationSpec, KeysMayBeSetBeforeTheirKind) {
  SpecTable spec = table_of("[workload]\nkind = \"incast\"\nsenders = 4\nbytes = 10");
  ASSERT_TRUE(set_specs(spec, {"workload.bytes=20", "workload.kind=permutation"}).has_value());
  // Not dropped in silence: reading the table refuses it.
  EXPECT_THAT(make_run_spec(spec, "").error().message,
              AllOf(HasSubstr("line 3"), HasSubstr("no key 'senders'")));
  spec.find("workload")->table()->erase("senders");
  EXPECT_EQ(to_text(*spec.find("workload")), "{kind = \"permutation\", bytes = 20}");
}

TEST(SimulationSpec, SetSpecChangesSingleValues) {
  SpecTable spec = table_of("[workload]\nkind = \"incast\"\nsenders = 4");
  ASSERT_TRUE(set_spec(spec, "workload.senders=32").has_value());
  ASSERT_TRUE(set_spec(spec, "fabric.ecn.low=10KB").has_value());
  ASSERT_TRUE(set_spec(spec, "fabric.trimming=true").has_value());
  ASSERT_TRUE(set_spec(spec, "workload.hosts=[0, 1]").has_value());
  EXPECT_EQ(to_text(*spec.find("workload")), "{kind = \"incast\", senders = 32, hosts = [0, 1]}");
  EXPECT_EQ(to_text(*spec.find("fabric")), "{ecn = {low = \"10KB\"}, trimming = true}");
  EXPECT_THAT(set_spec(spec, "senders").error().message, HasSubstr("KEY=VALUE"));
  EXPECT_THAT(set_spec(spec, "workload.kind.x=1").error().message,
              AllOf(HasSubstr("line 2"), HasSubstr("not a table")));
}

TEST(SimulationSpec, ShortFormsBecomeTables) {
  const auto table = table_from_short_form("leaf-spine:hosts=16,rate=400G");
  ASSERT_TRUE(table.has_value());
  EXPECT_EQ(to_text(SpecValue{.value = *table, .place = {}}),
            "{kind = \"leaf-spine\", hosts = 16, rate = \"400G\"}");
  EXPECT_EQ(to_text(*table_from_short_form("nets/a.topo")->find("file")), "\"nets/a.topo\"");
  EXPECT_FALSE(table_from_short_form("star:hosts").has_value());
}

TEST(SimulationSpec, BytesHaveDecimalAndBinaryUnits) {
  EXPECT_EQ(parse_bytes("417KB"), 417'000U);
  EXPECT_EQ(parse_bytes("417KiB"), 417U * 1024);
  EXPECT_EQ(parse_bytes("2M"), 2U << 20);
  EXPECT_EQ(parse_bytes("12B"), 12U);
  EXPECT_EQ(parse_bytes("12"), 12U);
  EXPECT_EQ(parse_bytes(""), std::nullopt);
  EXPECT_EQ(parse_bytes("B"), std::nullopt);
  EXPECT_EQ(parse_bytes("-1KB"), std::nullopt);
  EXPECT_EQ(parse_bytes("1KBB"), std::nullopt);
  EXPECT_EQ(parse_bytes("99999999999999999999"), std::nullopt);
}

}  // namespace
}  // namespace pacecar::spec_test
