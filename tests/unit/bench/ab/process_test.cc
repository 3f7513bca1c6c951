#include "bench/ab/process.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>

namespace pacecar::ab::process_test {
namespace {

using cli::Child;

std::map<size_t, Outcome> wait_for_all(Processes& processes) {
  std::map<size_t, Outcome> outcomes;
  while (processes.running() > 0) {
    if (auto ended = processes.wait()) outcomes.insert(std::move(*ended));
  }
  return outcomes;
}

TEST(Processes, OutputAndExitCodeOfChildrenAreKept) {
  Processes processes;
  for (int i = 0; i < 3; ++i) {
    auto child = Child::run([i] {
      std::printf("out %d\n", i);
      std::fprintf(stderr, "err %d\n", i);
      return i;
    });
    ASSERT_TRUE(child);
    processes.add(static_cast<size_t>(i), std::move(*child), Duration::max());
  }
  const auto outcomes = wait_for_all(processes);
  ASSERT_EQ(outcomes.size(), 3u);
  EXPECT_EQ(outcomes.at(2).output, "out 2\n");
  EXPECT_EQ(outcomes.at(1).errors, "err 1\n");
  EXPECT_EQ(outcomes.at(2).status.code, 2);
  EXPECT_TRUE(outcomes.at(0).ok());
  EXPECT_FALSE(outcomes.at(2).ok());
  EXPECT_EQ(outcomes.at(2).cause(), "ended with exit code 2");
}

TEST(Processes, CrashIsReportedAsAnOutcome) {
  Processes processes;
  auto child = Child::run([] {
    std::signal(SIGABRT, SIG_DFL);
    std::abort();
    return 0;
  });
  ASSERT_TRUE(child);
  processes.add(7, std::move(*child), Duration::max());
  const auto outcomes = wait_for_all(processes);
  EXPECT_EQ(outcomes.at(7).status.signal, SIGABRT);
  EXPECT_NE(outcomes.at(7).cause().find("signal 6"), std::string::npos);
}

TEST(Processes, OutputBeyondAPipesCapacityIsKept) {
  Processes processes;
  auto child = Child::run([] {
    for (int i = 0; i < 300'000; ++i) std::puts("0123456789");
    return 0;
  });
  ASSERT_TRUE(child);
  processes.add(0, std::move(*child), Duration::max());
  EXPECT_EQ(wait_for_all(processes).at(0).output.size(), 3'300'000u);
}

TEST(Processes, TimeoutKillsTheCommandAndItsChildren) {
  Processes processes;
  // The inner sleep would hold the pipe open for a minute.
  auto child = Child::execute({"sh", "-c", "echo begun; sleep 60; echo late"}, {});
  ASSERT_TRUE(child);
  processes.add(0, std::move(*child), Duration::from_ms(2500));
  const Outcome outcome = wait_for_all(processes).at(0);
  EXPECT_TRUE(outcome.timed_out);
  EXPECT_EQ(outcome.output, "begun\n");
  EXPECT_EQ(outcome.cause(), "ran past its limit of 2.5 s");
}

TEST(Processes, CommandsReceiveTheirEnvironment) {
  Processes processes;
  auto child = Child::execute({"sh", "-c", "echo $A-$B"}, {.environment = {"A=1", "B=x=y z"}});
  ASSERT_TRUE(child);
  processes.add(0, std::move(*child), Duration::max());
  EXPECT_EQ(wait_for_all(processes).at(0).output, "1-x=y z\n");
}

// Else the processes that a child has started would live on.
TEST(Processes, LaterSignalsLeaveTheTimeToKillChildren) {
  Processes processes;
  for (const int number : {SIGINT, SIGINT, SIGTERM, SIGTERM}) {
    std::raise(number);
    EXPECT_TRUE(cli::Interrupt::asked());
  }
}

}  // namespace
}  // namespace pacecar::ab::process_test
