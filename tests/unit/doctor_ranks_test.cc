// What ranks' profiles say: made-up jobs, each with one thing wrong; clocks that are apart; traces.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "bench/doctor/ranks.h"
#include "bench/doctor/trace.h"
#include "bench/doctor/verdict.h"
#include "tests/support/doctor_job.h"

namespace pacecar::test {
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

// How a rank of a ring fares in each collective; milliseconds.
struct Fate {
  double late = 0;
  double gpu = 0;        // until its GPU's first data
  double copy = 0;       // its GPU takes each message so slowly
  double network = 0.2;  // that each message takes to it
  double clock_ms = 0;   // its clock is ahead
  double starved = 0;
  uint64_t count = 1000;
  bool swapped = false;  // the tenth and the eleventh
};

uint64_t ns(double ms) { return static_cast<uint64_t>(ms * static_cast<double>(kMs)); }

class Recorded {
 public:
  Recorded(const std::vector<Fate>& fates, size_t rank) : fates_(fates), rank_(rank) {
    const size_t next = (rank + 1) % fates.size();
    const size_t previous = (rank + fates.size() - 1) % fates.size();
    for (uint64_t i = 0; i < kCollectives; ++i) {
      const uint64_t number = fates[rank].swapped && (i == 10 || i == 11) ? 21 - i : i;
      add(i, number, next, previous);
    }
    profile.communicator = "c";
    profile.rank = static_cast<int64_t>(rank);
    profile.since_ns = at(0);
    profile.now_ns = at(kCollectives * kPeriod);
    profile.starved = fates[rank].starved;
  }
  Profile profile;

 private:
  uint64_t at(uint64_t since) const { return 1000 * kMs + since + ns(fates_[rank_].clock_ms); }

  uint64_t begin(std::vector<ProfiledEvent>& list, ProfiledEvent event) {
    event.id = ++last_id_;
    list.push_back(event);
    return last_id_;
  }

  // Everybody ends together, when the last one is through.
  void add(uint64_t index, uint64_t number, size_t next, size_t previous) {
    const Fate& own = fates_[rank_];
    double longest = 0;
    for (const Fate& one : fates_) longest = std::max(longest, one.late + one.gpu);
    const uint64_t start = index * kPeriod + ns(own.late);
    const uint64_t data = index * kPeriod + ns(longest);  // from then on messages flow
    double spent = 0;
    for (const Fate& one : fates_) spent = std::max(spent, one.network + one.copy);
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
    op.waits.gpu_ns = kMessages * ns(own.copy);
    const uint64_t receives = begin(profile.operations, op);
    for (uint64_t step = 0; step < kMessages; ++step) {
      const uint64_t left = data + step * ns(std::max(fates_[next].network, own.network));
      begin(profile.steps, {.kind = ProfiledKind::kProxyStep,
                            .number = step,
                            .parent = sends,
                            .start_ns = at(start),
                            .stop_ns = at(left + ns(fates_[next].network)),
                            .moment_ns = at(left)});
      const uint64_t came =
          data + step * ns(std::max(own.network, fates_[previous].network)) + ns(own.network);
      const uint64_t posted = std::max(start, came - ns(own.network));
      begin(profile.steps, {.kind = ProfiledKind::kProxyStep,
                            .number = step,
                            .parent = receives,
                            .start_ns = at(posted),
                            .stop_ns = at(came + ns(own.copy)),
                            .moment_ns = at(came)});
    }
  }

  const std::vector<Fate>& fates_;
  size_t rank_;
  uint64_t last_id_ = 0;
};

Job job_of_fates(const std::vector<Fate>& fates) {
  std::vector<Process> processes = ranks(fates.size());
  for (size_t rank = 0; rank < fates.size(); ++rank) {
    processes[rank].profiles.push_back(Recorded(fates, rank).profile);
  }
  return job_of(std::move(processes));
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

TEST(DoctorRanks, AHealthyJobIsNotAccusedWhateverItsClocks) {
  for (const size_t size : {2, 3, 4, 8}) {
    std::vector<Fate> fates(size);
    for (size_t i = 0; i < size; ++i) {
      fates[i].late = 0.3 * static_cast<double>(i % 3);
      fates[i].clock_ms = 1e5 * static_cast<double>(i);
      fates[i].starved = 0.05 * static_cast<double>(i % 2);
    }
    const Job job = job_of_fates(fates);
    const auto findings = doctor::examine_ranks(job);
    EXPECT_TRUE(findings.empty()) << findings.front().rule << ": " << findings.front().why;
    EXPECT_FALSE(doctor::conclude(job, doctor::examine(job)).trouble);
  }
}

TEST(DoctorRanks, NamesTheOneThatIsWrongAndHow) {
  for (const size_t size : {3, 4, 8}) {
    const std::vector<Fate> well(size);
    const auto with = [&](size_t rank, const Fate& fate) {
      std::vector<Fate> fates = well;
      fates[rank] = fate;
      return job_of_fates(fates);
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

TEST(DoctorRanks, AllAlikeSlowIsNobodysFault) {
  const std::vector<Fate> fates(4, Fate{.late = 20, .gpu = 5, .copy = 2, .network = 3});
  EXPECT_TRUE(doctor::examine_ranks(job_of_fates(fates)).empty());
}

TEST(DoctorRanks, ALinkThatIsDownIsNamedAtOnce) {
  std::vector<Process> processes = ranks(3);
  processes[1].nics[0].link_down = true;
  EXPECT_FALSE(doctor::conclude(job_of(processes), {}).trouble) << "nobody uses it";
  processes[1].nics[0].flows = {flow_to(2)};
  const Job job = job_of(processes);
  const doctor::Verdict verdict = doctor::conclude(job, doctor::examine(job));
  EXPECT_EQ(verdict.rule, "dead-port");
  EXPECT_EQ(verdict.process, "rank 1 (h1, pid 101)");
}

TEST(DoctorRanks, APortIsDeadWhereTwoPathsAreCutAndAPathWhereOneIs) {
  std::vector<Process> processes = ranks(4);
  const auto cut = [&](size_t from, size_t to) {
    processes[from].nics[0].flows.push_back(still(flow_to(to), 6, true));
    processes[to].nics[0].flows.push_back(still(flow_from(from), 6, true));
  };
  cut(1, 2);
  Job job = job_of(processes);
  EXPECT_EQ(doctor::conclude(job, doctor::examine(job)).rule, "cut");
  cut(2, 3);
  job = job_of(processes);
  const doctor::Verdict verdict = doctor::conclude(job, doctor::examine(job));
  EXPECT_EQ(verdict.rule, "dead-port");
  EXPECT_EQ(verdict.process, "rank 2 (h2, pid 102)");
}

TEST(DoctorRanks, WhoIsLateForWantOfAProcessorOnABusyHostIsNotAccused) {
  std::vector<Fate> fates(4, Fate{.starved = 0.2});
  fates[1].late = 20;  // 40% of the time
  EXPECT_EQ(doctor::examine_ranks(job_of_fates(fates)).size(), 1U);
  fates[1].starved = 0.4;
  EXPECT_TRUE(doctor::examine_ranks(job_of_fates(fates)).empty());
}

TEST(DoctorRanks, AShareOfTheSchedulerIsNoSlowPath) {
  std::vector<Fate> fates(4, Fate{.starved = 0.3});
  fates[2].network = 3.5;
  EXPECT_TRUE(doctor::examine_ranks(job_of_fates(fates)).empty());
}

TEST(DoctorClocks, AreFoundWithinHalfARoundTripOfTheRing) {
  std::vector<Fate> fates(5);
  for (size_t i = 0; i < fates.size(); ++i) fates[i].clock_ms = 777.0 * static_cast<double>(i * i);
  fates[3].late = 15;
  const Job job = job_of_fates(fates);
  const auto members = doctor::communicators(job).at("c");
  const std::vector<double> offsets = doctor::clock_offsets(members);
  ASSERT_EQ(offsets.size(), fates.size());
  for (size_t i = 0; i < fates.size(); ++i) {
    EXPECT_NEAR(offsets[i], 1e-3 * fates[i].clock_ms, 1e-3) << i;
  }
}

TEST(DoctorTrace, HasEveryRankOnOneTimeAxis) {
  std::vector<Fate> fates(3);
  fates[1].clock_ms = 5000;
  const nlohmann::json trace = doctor::trace_of(job_of_fates(fates));
  std::map<int, double> first;
  size_t steps = 0;
  std::set<std::string> names;
  for (const auto& event : trace["traceEvents"]) {
    const int rank = event["pid"];
    if (event["ph"] == "M" && event["name"] == "process_name") names.insert(event["args"]["name"]);
    if (event["ph"] != "X") continue;
    steps += event["name"].get<std::string>().starts_with("step");
    if (event["name"] == "AllReduce 0") first[rank] = event["ts"];
  }
  EXPECT_EQ(names, (std::set<std::string>{"rank 0 (h0, pid 100)", "rank 1 (h1, pid 101)",
                                          "rank 2 (h2, pid 102)"}));
  EXPECT_EQ(steps, 3 * kCollectives * kMessages * 2);
  EXPECT_NEAR(first[1], first[0], 1000);
  EXPECT_NEAR(first[2], first[0], 1000);
}

}  // namespace
}  // namespace pacecar::test
