// Findings of many hosts, each printed once, and facts that differ.
#include "bench/hosts/preflight_groups.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace pacecar::test::preflight_groups_test {
namespace {

using namespace hosts;
using preflight::Severity;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

preflight::Finding finding(const char* id, Severity severity, const char* message) {
  return {.id = id, .severity = severity, .subject = "eth0", .message = message, .cure = "cure it"};
}

std::vector<HostReport> rack(size_t hosts) {
  std::vector<HostReport> reports;
  for (size_t i = 0; i < hosts; ++i) {
    reports.push_back({.host = "gpu" + std::to_string(i),
                       .findings = {finding("mtu.small", Severity::kWarning, "MTU 1500"),
                                    finding("rdma.port", Severity::kOk, "fine")},
                       .facts = {{"kernel", "6.1"}, {"eth0 MTU", "9000"}}});
  }
  return reports;
}

TEST(PreflightGroupsTest, EqualFindingsArePrintedOnce) {
  auto reports = rack(16);
  reports[3].findings[0] = finding("limits.memlock_low", Severity::kError, "64 KiB");
  reports[9].findings[0] = finding("limits.memlock_low", Severity::kError, "64 KiB");
  EXPECT_THAT(group_findings(reports), SizeIs(2));
  const std::string text = to_text(reports, reports.size());
  EXPECT_THAT(text, HasSubstr("warning  on 14 of 16 hosts (not gpu3, gpu9): eth0: MTU 1500\n"));
  EXPECT_THAT(text, HasSubstr("error    on gpu3, gpu9: eth0: 64 KiB\n         cure: cure it\n"));
  EXPECT_THAT(text, HasSubstr("Not ready: 2 of 16 hosts with errors.\n"));
  EXPECT_THAT(text, Not(HasSubstr("fine")));
  EXPECT_EQ(worst_of(reports), Severity::kError);
}

TEST(PreflightGroupsTest, FactsThatDifferAreNamed) {
  auto reports = rack(4);
  reports[2].facts["kernel"] = "5.10";
  reports[2].facts["docker0 MTU"] = "1450";  // a fact of one host only does not count
  const auto differences = find_differences(reports);
  ASSERT_THAT(differences, SizeIs(1));
  EXPECT_EQ(differences[0].fact, "kernel");
  EXPECT_THAT(to_text(reports, reports.size()),
              HasSubstr("differs  kernel: 6.1 on 3 of 4 hosts (not gpu2); 5.10 on gpu2\n"));
  EXPECT_THAT(find_differences(rack(4)), IsEmpty());
}

TEST(PreflightGroupsTest, LongListsOfHostsAreCut) {
  const auto reports = rack(40);
  Names half;
  for (size_t i = 0; i < 20; ++i) half.push_back("gpu" + std::to_string(i));
  EXPECT_EQ(who(half, reports),
            "20 of 40 hosts (gpu0, gpu1, gpu2, gpu3, gpu4, gpu5, gpu6, gpu7, ...)");
  EXPECT_EQ(who({"gpu7"}, reports), "gpu7");
  EXPECT_EQ(who({"gpu0"}, rack(1)), "gpu0");
}

TEST(PreflightGroupsTest, ReportsAreReadAsUntrustedData) {
  const auto good = read_report("gpu0", R"({"findings":[{"id":"mtu.small","severity":"ok",
    "subject":"e\u001bth0","message":"m","cure":"c"}],"facts":{"kernel":"6.1"}})");
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_EQ(good->findings[0].severity, Severity::kWarning)
      << "severity of the finding's kind, not of the report";
  EXPECT_EQ(good->findings[0].subject, "e?th0");
  const std::string deep =
      R"({"findings":[],"facts":{},"more":)" + std::string(100, '[') + std::string(100, ']') + "}";
  EXPECT_FALSE(read_report("gpu0", deep)) << "each level would take stack when it is printed";
  for (const char* text : {"", "7", "{}", R"({"findings":[{}],"facts":{}})", "{\"findings\":7}",
                           R"({"findings":[{"id":"no.such","subject":"","message":"","cure":""}],
                             "facts":{}})"}) {
    EXPECT_FALSE(read_report("gpu0", text)) << text;
  }
}

}  // namespace
}  // namespace pacecar::test::preflight_groups_test
