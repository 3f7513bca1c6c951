// On a loaded host, a thread loses its core in the middle of a wait.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "tests/support/over_ofi.h"

namespace pacecar::starved_test {
namespace {

// How many of the next yields lose the core, each for longer than the limit of any wait.
std::atomic<int> taken_away{0};
constexpr useconds_t kAwayUs = 700'000;

}  // namespace
}  // namespace pacecar::starved_test

// Replaces the function of the C library.
extern "C" int sched_yield() noexcept {
  using pacecar::starved_test::taken_away;
  if (taken_away.load() > 0 && taken_away.fetch_sub(1) > 0) {
    return usleep(pacecar::starved_test::kAwayUs);
  }
  return static_cast<int>(syscall(SYS_sched_yield));
}

namespace pacecar::starved_test {
namespace {

using test::OfiConnection;
using test::OfiEnd;
using test::run_until;

class OfiStarvedTest : public test::OverOfi {};

INSTANTIATE_TEST_SUITE_P(Over, OfiStarvedTest, test::every_ofi_kind(), test::ofi_kind_name);

// The peer is the same NIC, which answers in its next turn.
TEST_P(OfiStarvedTest, TimeWithoutTurnsOfTheNicDoesNotEndAWait) {
  OfiEnd end(kind());
  const OfiConnection ends = connect(end, end);
  const auto& source = end.memory(kSize, Access::kLocalRead, 7);
  const auto& sink = end.memory(kSize, Access::kRemoteWrite);
  ASSERT_TRUE(end.post(ends.a, OfiEnd::write(1, source, sink.target())));
  ASSERT_TRUE(run_until({&end}, [&] { return end.finished(ends.a) == 1; }));
  taken_away = 3;
  end.nic().deregister_memory(sink.region);
  taken_away = 0;
  for (int i = 0; i < 100; ++i) end.step();
  EXPECT_EQ(end.broken(ends.a), nullptr) << end.nic().fault(ends.a);
  EXPECT_EQ(end.broken(ends.b), nullptr) << end.nic().fault(ends.b);
}

}  // namespace
}  // namespace pacecar::starved_test
