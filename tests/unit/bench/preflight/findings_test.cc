// The table of findings, and their output.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "bench/preflight/checks.h"
#include "bench/preflight/finding.h"
#include "bench/preflight/report.h"
#include "tests/support/finding_matchers.h"

namespace pacecar::preflight::findings_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string text_of(const std::string& file) {
  std::stringstream text;
  text << std::ifstream(PACECAR_PREFLIGHT_DIR + file).rdbuf();
  return text.str();
}

TEST(PreflightFindings, KindIsARowOfTheReadme) {
  const auto ecn_off = std::ranges::find(kFindingKinds, "fabric.ecn_off", &FindingKind::id);
  ASSERT_NE(ecn_off, kFindingKinds.end());
  EXPECT_EQ(ecn_off->severity, Severity::kWarning);
  EXPECT_EQ(ecn_off->what, "the adapter's congestion notifications (DCQCN) are off");
  EXPECT_EQ(ecn_off->cure, "echo 1 | tee /sys/class/net/NETDEV/ecn/roce_{np,rp}/enable/3");
}

TEST(PreflightFindings, FindingIsMadeByTheCheckThatItsIdBeginsWith) {
  for (const FindingKind& kind : kFindingKinds) {
    const std::string id(kind.id);
    const std::string source = text_of("check_" + id.substr(0, id.find('.')) + ".cc");
    EXPECT_THAT(source, HasSubstr('"' + id + '"'));
  }
}

TEST(PreflightFindings, EachIdBelongsToACheckAndIsUsedOnce) {
  std::set<std::string_view> seen;
  for (const FindingKind& kind : kFindingKinds) {
    EXPECT_TRUE(seen.insert(kind.id).second) << kind.id;
    const auto check = kind.id.substr(0, kind.id.find('.'));
    EXPECT_NE(std::ranges::find(checks(), check, &Check::name), checks().end()) << kind.id;
    EXPECT_FALSE(kind.what.empty()) << kind.id;
    if (kind.severity >= Severity::kWarning) {
      EXPECT_FALSE(kind.cure.empty()) << kind.id;
    }
    if (kind.severity == Severity::kOk) {
      EXPECT_EQ(kind.cure, "") << kind.id;
    }
  }
}

TEST(PreflightFindings, ChecksAreListedWithWhatTheyFind) {
  const std::string list = list_checks();
  for (const Check& check : checks()) EXPECT_THAT(list, HasSubstr(check.summary));
  for (const FindingKind& kind : kFindingKinds) EXPECT_THAT(list, HasSubstr(kind.id));
}

TEST(PreflightFindings, CuresAreSafeToPaste) {
  Findings findings;
  findings.add("rdma.link_down", {"a", {{"NETDEV", "eth0; rm -rf '/'"}}}, "b");
  findings.add("rdma.link_down", {"a\x1b[31m", {{"NETDEV", ""}}}, "{}", "b\nc\xff");
  EXPECT_EQ(findings.all()[0].cure, R"(ip link set dev 'eth0; rm -rf '\''/'\''' up)");
  EXPECT_EQ(findings.all()[1].cure, "ip link set dev NETDEV up");  // unknown value
  EXPECT_EQ(findings.all()[1].subject, "a?[31m");
  EXPECT_EQ(findings.all()[1].message, "b?c?");
}

TEST(PreflightReport, ProblemsComeLastAndErrorsAfterWarnings) {
  Findings findings;
  findings.add("rdma.libibverbs_missing", "library", "the error");
  findings.add("mtu.small", {"port", {{"NETDEV", "eth2"}}}, "the warning");
  findings.add("cpu.governor", "governor", "fine");
  EXPECT_EQ(to_text(findings, {}),
            "cpu\n"
            "  ok       governor  fine\n"
            "\n"
            "  warning  port      the warning\n"
            "                     cure: ip link set dev eth2 mtu 9000\n"
            "\n"
            "  error    library   the error\n"
            "                     cure: apt-get install libibverbs1 ibverbs-providers\n"
            "\n"
            "Not ready: 1 error and 1 warning.\n");
  EXPECT_THAT(to_text(findings, {.quiet = true}), Not(HasSubstr("governor")));
  EXPECT_THAT(to_text(findings, {.color = true}), HasSubstr("\033[31merror  \033[0m"));
  EXPECT_EQ(to_text({}, {}), "Nothing was examined: this host has no device for it.\n");
}

TEST(PreflightReport, JsonHasFindingsAndTheWorstSeverity) {
  Findings findings;
  findings.add("mtu.small", {"mlx5_0/1", {{"NETDEV", "eth2"}}}, "small");
  const auto document = to_json(findings, "1.2.3");
  EXPECT_EQ(document["schema_version"], 1);
  EXPECT_EQ(document["version"], "1.2.3");
  EXPECT_EQ(document["worst"], "warning");
  EXPECT_EQ(document["findings"][0], nlohmann::json({{"id", "mtu.small"},
                                                     {"severity", "warning"},
                                                     {"subject", "mlx5_0/1"},
                                                     {"message", "small"},
                                                     {"cure", "ip link set dev eth2 mtu 9000"}}));
}

}  // namespace
}  // namespace pacecar::preflight::findings_test
