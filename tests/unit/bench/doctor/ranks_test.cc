// Findings from the profiles of ranks: scripted jobs with one fault each.
#include "bench/doctor/ranks.h"

#include <gmock/gmock.h>

#include "bench/doctor/collectives.h"
#include "bench/doctor/verdict.h"
#include "tests/support/doctor_job.h"

namespace pacecar::test::ranks_test {
namespace {

using doctor::Job;
using doctor::Process;
using doctor::Profile;
using doctor::ProfiledEvent;
using doctor::ProfiledKind;
using testing::HasSubstr;

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kPeriod = 50 * kMs;
constexpr uint64_t kCollectives = 20;
constexpr uint64_t kMessages = 6;

// How a rank of a ring behaves in each collective; in milliseconds.
struct Behavior {
  double late = 0;
  double gpu = 0;        // until the first data of its GPU
  double copy = 0;       // time of its GPU to copy a message
  double held = 0;       // by which its GPU takes the first message later, as it waits for others
  double network = 0.2;  // time of each message to this rank
  double clock_ms = 0;   // by which its clock is ahead
  double starved = 0;
  uint64_t count = 1000;
  bool swapped = false;  // collectives 10 and 11 are in the other order
};

uint64_t ns(double ms) { return static_cast<uint64_t>(ms * static_cast<double>(kMs)); }

class Recorded {
 public:
  Recorded(const std::vector<Behavior>& behaviors, size_t rank)
      : behaviors_(behaviors), rank_(rank) {
    const size_t next = (rank + 1) % behaviors.size();
    const size_t previous = (rank + behaviors.size() - 1) % behaviors.size();
    for (uint64_t i = 0; i < kCollectives; ++i) {
      const uint64_t number = behaviors[rank].swapped && (i == 10 || i == 11) ? 21 - i : i;
      add(i, number, next, previous);
    }
    profile.communicator = "c";
    profile.rank = static_cast<int64_t>(rank);
    profile.since_ns = at(0);
    profile.now_ns = at(kCollectives * kPeriod);
  }
  Profile profile;

 private:
  uint64_t at(uint64_t since) const { return 1000 * kMs + since + ns(behaviors_[rank_].clock_ms); }

  uint64_t begin(std::vector<ProfiledEvent>& list, ProfiledEvent event) {
    event.id = ++last_id_;
    list.push_back(event);
    return last_id_;
  }

  // All ranks end a collective together, when the slowest one is done.
  void add(uint64_t index, uint64_t number, size_t next, size_t previous) {
    const Behavior& own = behaviors_[rank_];
    double longest = 0;
    for (const Behavior& one : behaviors_) longest = std::max(longest, one.late + one.gpu);
    const uint64_t start = index * kPeriod + ns(own.late);
    const uint64_t data = index * kPeriod + ns(longest);  // from then on messages flow
    double spent = 0;
    for (const Behavior& one : behaviors_) spent = std::max(spent, one.network + one.copy);
    const uint64_t end = data + kMessages * ns(spent) + kMs;
    const uint64_t whole = begin(profile.operations, {.kind = ProfiledKind::kCollective,
                                                      .operation = "AllReduce",
                                                      .number = number,
                                                      .amount = own.count,
                                                      .start_ns = at(start),
                                                      .stop_ns = at(end)});
    ProfiledEvent op{.kind = ProfiledKind::kProxyOp,
                     .parent = whole,
                     .start_ns = at(start),
                     .stop_ns = at(end),
                     .first_ns = ns(own.gpu)};
    op.sending = true;
    op.peer = static_cast<int64_t>(next);
    const uint64_t sends = begin(profile.operations, op);
    op.sending = false;
    op.peer = static_cast<int64_t>(previous);
    op.first_ns = 0;
    const uint64_t receives = begin(profile.operations, op);
    for (uint64_t step = 0; step < kMessages; ++step) {
      const uint64_t left = data + step * ns(std::max(behaviors_[next].network, own.network));
      begin(profile.steps, {.kind = ProfiledKind::kProxyStep,
                            .number = step,
                            .parent = sends,
                            .start_ns = at(start),
                            .stop_ns = at(left + ns(behaviors_[next].network)),
                            .moment_ns = at(left)});
      const uint64_t came =
          data + step * ns(std::max(own.network, behaviors_[previous].network)) + ns(own.network);
      const uint64_t posted = std::max(start, came - ns(own.network));
      begin(profile.steps, {.kind = ProfiledKind::kProxyStep,
                            .number = step,
                            .parent = receives,
                            .start_ns = at(posted),
                            .stop_ns = at(came + ns(own.copy) + (step == 0 ? ns(own.held) : 0)),
                            .moment_ns = at(came)});
    }
  }

  const std::vector<Behavior>& behaviors_;
  size_t rank_;
  uint64_t last_id_ = 0;
};

std::vector<Process> processes_of(const std::vector<Behavior>& behaviors) {
  std::vector<Process> processes = ranks(behaviors.size());
  for (size_t rank = 0; rank < behaviors.size(); ++rank) {
    processes[rank].profiles.push_back(Recorded(behaviors, rank).profile);
    processes[rank].starved = behaviors[rank].starved;
  }
  return processes;
}

Job job_of_behaviors(const std::vector<Behavior>& behaviors) {
  return job_of(processes_of(behaviors));
}

void expect_found(const Job& job, std::string_view rule, size_t rank) {
  const auto findings = doctor::examine_ranks(job);
  ASSERT_FALSE(findings.empty()) << rule;
  EXPECT_EQ(findings.front().rule, rule);
  EXPECT_EQ(findings.front().process->rank, rank) << findings.front().why;
  const doctor::Verdict verdict = doctor::conclude(job, doctor::examine(job));
  EXPECT_TRUE(verdict.trouble);
  EXPECT_EQ(verdict.rule, rule);
}

TEST(DoctorRanks, HealthyJobHasNoFindingsWhateverItsClocks) {
  for (const size_t size : {2, 3, 4, 8}) {
    std::vector<Behavior> behaviors(size);
    for (size_t i = 0; i < size; ++i) {
      behaviors[i].late = 0.3 * static_cast<double>(i % 3);
      behaviors[i].clock_ms = 1e5 * static_cast<double>(i);
      behaviors[i].starved = 0.05 * static_cast<double>(i % 2);
    }
    const Job job = job_of_behaviors(behaviors);
    const auto findings = doctor::examine_ranks(job);
    EXPECT_TRUE(findings.empty()) << findings.front().rule << ": " << findings.front().why;
    EXPECT_FALSE(doctor::conclude(job, doctor::examine(job)).trouble);
  }
}

TEST(DoctorRanks, FaultyRankAndItsRuleAreFound) {
  for (const size_t size : {3, 4, 8}) {
    const std::vector<Behavior> well(size);
    const auto with = [&](size_t rank, const Behavior& behavior) {
      std::vector<Behavior> behaviors = well;
      behaviors[rank] = behavior;
      return job_of_behaviors(behaviors);
    };
    expect_found(with(1, {.late = 20}), "late-rank", 1);
    expect_found(with(2, {.gpu = 20}), "late-gpu", 2);
    expect_found(with(0, {.copy = 5}), "slow-copy", 0);
    expect_found(with(1, {.starved = 0.6}), "slow-host", 1);
    expect_found(with(2, {.late = 20, .starved = 0.6}), "slow-host", 2);
    expect_found(with(1, {.count = 999}), "mismatch", 1);
    expect_found(with(2, {.swapped = true}), "mismatch", 2);
    expect_found(with(2, {.network = 6}), "slow-path", 1);  // from the rank before it
  }
}

// Ranks on one host share its link with one another.
TEST(DoctorRanks, OnlyOtherProgramsMakeASlowPathAnIncast) {
  std::vector<Behavior> behaviors(4);
  behaviors[2].network = 6;
  std::vector<Process> processes = processes_of(behaviors);
  processes[3].host = processes[2].host;
  auto& sharers = processes[2].nics[0].sharers;
  for (const size_t rank : {2, 3}) {
    sharers.push_back({.pid = processes[rank].pid, .in_demand_bps = 1e9});
  }
  EXPECT_EQ(doctor::examine_ranks(job_of(processes)).front().rule, "slow-path");
  sharers.push_back({.program = "copy", .pid = 7, .in_demand_bps = 1e9});
  EXPECT_EQ(doctor::examine_ranks(job_of(processes)).front().rule, "incast");
}

// As NCCL's kernels do: while the next rank or its own GPU is late, a rank takes arrived data only
// when it can pass the data on.
TEST(DoctorRanks, GpuThatWaitsForOthersIsNoSlowCopy) {
  std::vector<Behavior> behaviors(4);
  behaviors[2].late = 20;
  behaviors[1].held = 20;
  expect_found(job_of_behaviors(behaviors), "late-rank", 2);
}

TEST(DoctorRanks, EquallySlowRanksGiveNoFinding) {
  const std::vector<Behavior> behaviors(4, Behavior{.late = 20, .gpu = 5, .copy = 2, .network = 3});
  EXPECT_TRUE(doctor::examine_ranks(job_of_behaviors(behaviors)).empty());
}

TEST(DoctorRanks, UsedLinkThatIsDownIsADeadPort) {
  std::vector<Process> processes = ranks(3);
  processes[1].nics[0].link_down = true;
  EXPECT_FALSE(doctor::conclude(job_of(processes), {}).trouble) << "no flow uses the NIC";
  processes[1].nics[0].flows = {flow_to(2)};
  const Job job = job_of(processes);
  const doctor::Verdict verdict = doctor::conclude(job, doctor::examine(job));
  EXPECT_EQ(verdict.rule, "dead-port");
  EXPECT_EQ(verdict.process, "rank 1 (h1, pid 101)");
}

TEST(DoctorRanks, TwoCutPathsMakeADeadPortAndOneACut) {
  std::vector<Process> processes = ranks(4);
  const auto cut = [&](size_t from, size_t to) {
    processes[from].nics[0].flows.push_back(still(flow_to(to), 6, true));
    processes[to].nics[0].flows.push_back(still(flow_from(from), 6, true));
  };
  cut(1, 2);
  Job job = job_of(processes);
  EXPECT_EQ(doctor::conclude(job, doctor::examine(job)).rule, "cut");
  cut(2, 1);
  job = job_of(processes);
  EXPECT_EQ(doctor::conclude(job, doctor::examine(job)).rule, "cut") << "the same path";
  cut(2, 3);
  job = job_of(processes);
  const doctor::Verdict verdict = doctor::conclude(job, doctor::examine(job));
  EXPECT_EQ(verdict.rule, "dead-port");
  EXPECT_EQ(verdict.process, "rank 2 (h2, pid 102)");
}

TEST(DoctorRanks, ProcessThatRarelyRunsIsNamedWithoutProfiles) {
  std::vector<Process> processes = ranks(3);
  for (Process& one : processes) one.running = one.starved = 0.5;
  EXPECT_FALSE(doctor::conclude(job_of(processes), {}).trouble);
  processes[1].running = 0.02;
  const auto verdict = doctor::conclude(job_of(processes), {});
  EXPECT_EQ(verdict.rule, "slow-host");
  EXPECT_EQ(verdict.process, "rank 1 (h1, pid 101)");
  EXPECT_TRUE(doctor::conclude(job_of({processes[1]}), {}).trouble);
  processes[0].running = processes[2].running = 0.03;
  EXPECT_FALSE(doctor::conclude(job_of(processes), {}).trouble) << "the whole host is busy";
  processes[1].starved = 0.1;
  EXPECT_FALSE(doctor::conclude(job_of({processes[1]}), {}).trouble) << "it mostly sleeps";
}

TEST(DoctorRanks, RankStarvedOfProcessorTimeIsNotLate) {
  std::vector<Behavior> behaviors(4, Behavior{.starved = 0.2});
  behaviors[1].late = 20;  // 40% of the time
  EXPECT_EQ(doctor::examine_ranks(job_of_behaviors(behaviors)).size(), 1U);
  behaviors[1].starved = 0.4;
  EXPECT_TRUE(doctor::examine_ranks(job_of_behaviors(behaviors)).empty());
}

TEST(DoctorRanks, DelayByTheSchedulerIsNoSlowPath) {
  std::vector<Behavior> behaviors(4, Behavior{.starved = 0.3});
  behaviors[2].network = 3.5;
  EXPECT_TRUE(doctor::examine_ranks(job_of_behaviors(behaviors)).empty());
}

}  // namespace
}  // namespace pacecar::test::ranks_test
