// pacecar doctor: each rule alone, the process that the others wait for, and the verdict.
#include "bench/doctor/rules.h"

#include <gmock/gmock.h>

#include "bench/doctor/report.h"
#include "bench/doctor/verdict.h"
#include "tests/support/doctor_job.h"

namespace pacecar::test::rules_test {
namespace {

using namespace doctor;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Two ranks. The flow belongs to rank 0, its peer is rank 1.
class RuleTest : public testing::Test {
 protected:
  const Rule& diagnose(const Flow& flow) {
    job_ = Job();
    processes_[0].nics[0].flows = {flow};
    for (const Process& process : processes_) job_.add(process);
    return doctor::diagnose(path());
  }
  std::string why(const Flow& flow) { return diagnose(flow).why(path()); }
  Path path() const {
    const Process& process = job_.processes()[0];
    return {&job_, &process, &process.nics[0], &process.nics[0].flows[0]};
  }

  std::vector<Process> processes_ = ranks(2);
  Job job_;
};

Flow limited(std::string by) {
  Flow flow = flow_to(1);
  flow.limited_by = std::move(by);
  flow.rate_bps = 2e9;
  return flow;
}

TEST_F(RuleTest, Fault) {
  Flow flow = flow_to(1);
  flow.fault = "RETRY_EXC_ERR";
  EXPECT_EQ(diagnose(flow).name, "fault");
  EXPECT_EQ(why(flow), "the flow to rank 1 (h1, pid 101) is broken: RETRY_EXC_ERR");
  flow = flow_from(1);
  flow.state = "broken";
  EXPECT_EQ(diagnose(flow).name, "fault");
  EXPECT_THAT(why(flow), HasSubstr("from rank 1"));
}

TEST_F(RuleTest, Unacknowledged) {
  const Flow flow = still(flow_to(1), 7, false);
  EXPECT_EQ(diagnose(flow).name, "unacknowledged");
  EXPECT_THAT(why(flow), HasSubstr("16 writes to rank 1 (h1, pid 101) have not been acknowledged "
                                   "for 7 s"));
  EXPECT_FALSE(diagnose(flow).blames_peer);
}

TEST_F(RuleTest, NoBuffer) {
  const Flow flow = still(flow_to(1), 7, true);
  EXPECT_EQ(diagnose(flow).name, "no-buffer");
  EXPECT_THAT(why(flow), HasSubstr("rank 1 (h1, pid 101) has posted no buffer for 7 s"));
  EXPECT_TRUE(diagnose(flow).blames_peer);
}

TEST_F(RuleTest, NoMessage) {
  const Flow flow = still(flow_from(1), 7, true);
  EXPECT_EQ(diagnose(flow).name, "no-message");
  EXPECT_THAT(why(flow), HasSubstr("rank 1 (h1, pid 101) has sent nothing for 7 s"));
  EXPECT_TRUE(diagnose(flow).blames_peer);
}

TEST_F(RuleTest, ShortWaitsAndIdleFlowsAreNotStalls) {
  for (const bool awaits_peer : {false, true}) {
    EXPECT_EQ(diagnose(still(flow_to(1), 4.9, awaits_peer)).name, "application");
    EXPECT_EQ(diagnose(still(flow_from(1), 4.9, awaits_peer)).name, "application");
    Flow idle = still(flow_to(1), 100, awaits_peer);
    idle.requests = 0;
    EXPECT_EQ(diagnose(idle).name, "application");
  }
}

TEST_F(RuleTest, Loss) {
  Flow flow = limited("network");
  flow.tried_bytes = 10'000'000;
  flow.repeated_bytes = 300'000;
  EXPECT_EQ(diagnose(flow).name, "loss");
  EXPECT_THAT(why(flow), HasSubstr("3.0% of what was sent to rank 1 (h1, pid 101)"));
  flow.repeated_bytes = 90'000;
  EXPECT_EQ(diagnose(flow).name, "network") << "a loss of less than 1% does not count";
  flow.tried_bytes = 100'000;
  flow.repeated_bytes = 50'000;
  EXPECT_EQ(diagnose(flow).name, "network") << "the loss of a few packets does not count";
}

TEST_F(RuleTest, PathMtu) {
  Flow flow = limited("network");
  flow.path_mtu_bytes = 1500;
  EXPECT_EQ(diagnose(flow).name, "path-mtu");
  EXPECT_THAT(why(flow), HasSubstr("packets above 1500 bytes do not pass to rank 1 (h1, pid 101)"));
}

TEST_F(RuleTest, Host) {
  Flow flow = limited("host");
  flow.rate_bps = 100e9;
  flow.goodput_bps = 20e9;
  EXPECT_EQ(diagnose(flow).name, "host");
  EXPECT_THAT(why(flow), HasSubstr("may send 100 Gb/s to rank 1 (h1, pid 101) and sends 20 Gb/s"));
  flow.goodput_bps.reset();
  EXPECT_THAT(why(flow), HasSubstr("sends less than half of it"));
  flow = limited("grant");
  flow.goodput_bps = 20e9;
  EXPECT_EQ(diagnose(flow).name, "grant") << "the limit that the process reports counts";
}

TEST_F(RuleTest, Network) {
  Flow flow = limited("network");
  flow.core_bps = 25e9;
  flow.rtt_s = 0.002;
  EXPECT_EQ(diagnose(flow).name, "network");
  EXPECT_THAT(why(flow), AllOf(HasSubstr("room for 25 Gb/s"), HasSubstr("takes 2000 us")));
}

TEST_F(RuleTest, GrantNamesHowManyShareTheReceiver) {
  Flow flow = limited("grant");
  flow.grant_bps = 12.5e9;
  EXPECT_EQ(diagnose(flow).name, "grant");
  EXPECT_THAT(why(flow), AllOf(HasSubstr("rank 1 (h1, pid 101) grants it 12.5 Gb/s"),
                               Not(HasSubstr("senders"))));
  processes_[1].nics[0].flows = {still(flow_from(0), 0, true), still(flow_from(2), 0, true),
                                 flow_from(3), flow_to(0)};
  EXPECT_THAT(why(flow), HasSubstr("2 senders share the link there (incast)"));
}

TEST_F(RuleTest, Budget) {
  Flow flow = limited("budget");
  flow.budget_bps = 40e6;
  EXPECT_EQ(diagnose(flow).name, "budget");
  EXPECT_EQ(why(flow), "PACECAR_RATE_MAX allows it 40 Mb/s");
}

TEST_F(RuleTest, Line) {
  EXPECT_EQ(diagnose(limited("line")).name, "line");
  EXPECT_THAT(why(limited("line")), HasSubstr("nic0 of rank 0 (h0, pid 100) has 100 Gb/s"));
}

TEST_F(RuleTest, Application) {
  EXPECT_EQ(diagnose(flow_to(1)).name, "application");
  EXPECT_EQ(why(flow_to(1)), "the application has nothing more to send");
  EXPECT_EQ(diagnose(flow_from(1)).name, "application");
  EXPECT_EQ(diagnose(limited("a later version's word")).name, "application");
}

TEST_F(RuleTest, UnknownPeerIsNamedByItsAddress) {
  EXPECT_THAT(why(still(flow_to(9), 7, true)), HasSubstr("192.0.2.9:4791 has posted no buffer"));
}

// A ring in which rank `late` computes; the others send to the next and receive from the previous
// rank.
Job ring_with_a_late_rank(size_t count, size_t late) {
  auto processes = ranks(count);
  for (size_t rank = 0; rank < count; ++rank) {
    if (rank == late) continue;
    auto& flows = processes[rank].nics[0].flows;
    const size_t next = (rank + 1) % count;
    flows.push_back(next == late ? still(flow_to(next), 10, true) : flow_to(next));
    flows.push_back(still(flow_from((rank + count - 1) % count), 9, true));
  }
  return job_of(std::move(processes));
}

TEST(VerdictTest, RankForWhichAllWaitIsFound) {
  for (const size_t late : {0U, 2U, 5U}) {
    const Job job = ring_with_a_late_rank(6, late);
    const auto findings = examine(job);
    const auto found = waited_for(findings);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->name, name_of(job.processes()[late]));
    EXPECT_EQ(found->waiters, 5U) << "the ranks wait directly or through each other";
    EXPECT_FALSE(found->circle);
    const Verdict verdict = conclude(job, findings);
    EXPECT_TRUE(verdict.trouble);
    EXPECT_EQ(verdict.process, name_of(job.processes()[late]));
    EXPECT_EQ(verdict.nic, job.processes()[late].nics[0].name);
    EXPECT_THAT(verdict.why, HasSubstr("5 of 6 processes"));
  }
}

TEST(VerdictTest, LateRankMayBeUnknown) {
  auto processes = ranks(3);
  processes[0].nics[0].flows = {still(flow_to(7), 8, true)};
  processes[1].nics[0].flows = {still(flow_from(0), 8, true)};
  const Job job = job_of(std::move(processes));
  const Verdict verdict = conclude(job, examine(job));
  EXPECT_EQ(verdict.process, "192.0.2.7:4791");
  EXPECT_THAT(verdict.why, AllOf(HasSubstr("2 of 3"), HasSubstr("run pacecar doctor there")));
}

TEST(VerdictTest, CircularWaitIsReported) {
  auto processes = ranks(3);
  for (size_t rank = 0; rank < 3; ++rank) {
    processes[rank].nics[0].flows = {still(flow_to((rank + 1) % 3), 8, true)};
  }
  const Job job = job_of(std::move(processes));
  const auto findings = examine(job);
  EXPECT_TRUE(waited_for(findings)->circle);
  EXPECT_THAT(conclude(job, findings).why, HasSubstr("3 processes wait for each other"));
}

TEST(VerdictTest, UnacknowledgedWritesExplainOtherWaits) {
  auto processes = ranks(3);
  processes[0].nics[0].flows = {still(flow_to(1), 20, true)};
  processes[1].nics[0].flows = {still(flow_to(2), 6, false)};
  const Job job = job_of(std::move(processes));
  const Verdict verdict = conclude(job, examine(job));
  EXPECT_EQ(verdict.process, name_of(job.processes()[1]));
  EXPECT_EQ(verdict.nic, "nic1");
  EXPECT_THAT(verdict.path, HasSubstr("to rank 2"));
  EXPECT_THAT(verdict.why, HasSubstr("have not been acknowledged"));
}

TEST(VerdictTest, SilentProcessComesFirst) {
  Job job = ring_with_a_late_rank(4, 1);
  job.add(SilentProcess{"h9", 77, "it does not answer"});
  const Verdict verdict = conclude(job, examine(job));
  EXPECT_TRUE(verdict.trouble);
  EXPECT_EQ(verdict.process, "pid 77 on h9");
}

TEST(VerdictTest, SlowestLimitedPathIsReportedWithoutTrouble) {
  auto processes = ranks(3);
  for (size_t rank = 0; rank < 3; ++rank) {
    Flow flow = flow_to((rank + 1) % 3);
    flow.limited_by = rank == 0 ? "network" : rank == 1 ? "grant" : "application";
    flow.rate_bps = 50e9;
    flow.goodput_bps = rank == 0 ? 9e9 : rank == 1 ? 2e9 : 0.1e9;
    processes[rank].nics[0].flows = {flow};
  }
  const Job job = job_of(std::move(processes));
  const Verdict verdict = conclude(job, examine(job));
  EXPECT_FALSE(verdict.trouble);
  EXPECT_EQ(verdict.process, name_of(job.processes()[1]));
  EXPECT_EQ(verdict.path, "rank 1 (h1, pid 101) to rank 2 (h2, pid 102)");
}

TEST(VerdictTest, IdleJobHasNoSlowPath) {
  auto processes = ranks(2);
  processes[0].nics[0].flows = {flow_to(1)};
  for (const Job& job : {job_of(ranks(2)), job_of(std::move(processes))}) {
    const Verdict verdict = conclude(job, examine(job));
    EXPECT_FALSE(verdict.trouble);
    EXPECT_EQ(verdict.process, "");
  }
}

TEST(VerdictTest, ProcessInTwoFilesCountsOnce) {
  auto processes = ranks(2);
  processes.push_back(processes[0]);
  EXPECT_EQ(job_of(std::move(processes)).processes().size(), 2U);
}

TEST(DoctorReportTest, ReportListsWorstFlowsFirstAndThenTheVerdict) {
  auto processes = ranks(2);
  Flow fast = flow_to(1);
  fast.limited_by = "line";
  fast.goodput_bps = 90e9;
  fast.rtt_s = 20e-6;
  processes[0].nics[0].flows = {fast, still(flow_to(1), 6, true)};
  const Job job = job_of(std::move(processes));
  const auto findings = examine(job);
  EXPECT_EQ(
      to_text(job, findings, conclude(job, findings)),
      "LIMIT      PROCESS               NIC       PEER                  GOODPUT  RTT    STILL FOR\n"
      "no-buffer  rank 0 (h0, pid 100)  nic0  to  rank 1 (h1, pid 101)  -        -      6.0 s\n"
      "line       rank 0 (h0, pid 100)  nic0  to  rank 1 (h1, pid 101)  90 Gb/s  20 us  -\n"
      "\n"
      "Trouble: rank 1 (h1, pid 101)\n"
      "  NIC   nic1\n"
      "  path  rank 0 (h0, pid 100) to rank 1 (h1, pid 101)\n"
      "  why   1 of 2 processes seen wait for it, and it waits for nobody: it computes, is "
      "stopped, or has failed; look there\n");
}

TEST(DoctorReportTest, LongTablesEndWithACount) {
  auto processes = ranks(2);
  processes[0].nics[0].flows.assign(100, flow_to(1));
  const Job job = job_of(std::move(processes));
  const auto findings = examine(job);
  EXPECT_THAT(to_text(job, findings, conclude(job, findings)), HasSubstr("and 60 more, "));
}

}  // namespace
}  // namespace pacecar::test::rules_test
