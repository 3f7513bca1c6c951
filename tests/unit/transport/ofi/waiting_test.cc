// Messages and writes that wait in a libfabric NIC, on providers that every machine has. A missing
// provider is skipped.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>

#include "tests/support/over_ofi.h"
#include "tests/support/under_sanitizer.h"

namespace pacecar::waiting_test {
namespace {

using test::monotonic_now;
using test::OfiConnection;
using test::OfiEnd;
using test::OfiLoad;
using test::run_until;

class OfiWaitingTest : public test::OverOfi {};

INSTANTIATE_TEST_SUITE_P(Over, OfiWaitingTest, test::every_ofi_kind(), test::ofi_kind_name);

// A message reports each complete write, and for a time the peer returns no credit for messages.
TEST_P(OfiWaitingTest, WritesWaitForAPeerThatTakesMessagesLate) {
  constexpr uint32_t kWrites = 400;
  OfiEnd from(kind(), Duration::from_s(1000));  // the turns below may take this long
  OfiEnd to(kind(), Duration::from_s(10), 1, OfiNotification::kAfterDelivery);
  const OfiConnection ends = connect(from, to, {.work_requests = kWrites});
  const auto& source = from.memory(64, Access::kLocalRead, 7);
  const auto& sink = to.memory(64, Access::kRemoteWrite);
  for (uint64_t id = 0; id < kWrites; ++id) {
    ASSERT_TRUE(from.post(ends.a, OfiEnd::write(id, source, sink.target())));
  }
  ASSERT_TRUE(run_until({&from, &to}, [&] { return to.received(ends.b) > 0; }));
  for (size_t turn = 0; turn < test::rounds(20'000); ++turn) {
    from.step();
    to.nic().receive(monotonic_now());
  }
  EXPECT_TRUE(run_until({&from, &to}, [&] {
    return to.received(ends.b) == kWrites || from.broken(ends.a) != nullptr;
  }));
  EXPECT_EQ(from.broken(ends.a), nullptr) << from.nic().fault(ends.a);
}

// The peer is asked for its memory. It sleeps whenever it may, and takes turns only when woken.
TEST_P(OfiWaitingTest, SleepingNicIsWokenForEveryMessage) {
  OfiEnd from(kind());
  OfiEnd to(kind());
  const auto& source = from.memory(64, Access::kLocalRead, 7);
  const OfiConnection ends = connect(from, to, {});
  for (size_t round = 1; round <= 16; ++round) {
    const auto& sink = to.memory(64, Access::kRemoteWrite);  // `from` has to ask for its key
    ASSERT_TRUE(from.post(ends.a, OfiEnd::write(round, source, sink.target())));
    ASSERT_TRUE(run_until({&from},
                          [&] {
                            pollfd woken{to.nic().wait_fd(), POLLIN, 0};
                            const bool sleeps = to.nic().prepare_to_wait(monotonic_now());
                            const bool late = to.nic().next_deadline() <= monotonic_now();
                            // Longer than a NIC sleeps that wakes itself by a timer.
                            if (!sleeps || late || poll(&woken, 1, 2) > 0) to.step();
                            return from.finished(ends.a) == round;
                          }))
        << "round " << round;
  }
}

// One queue pair always has the next write ready when the last is complete. The clock stands still,
// so that no timer lets the others try again.
TEST_P(OfiWaitingTest, RefusedQueuePairsTakeTurnsForRoom) {
  constexpr size_t kOthers = 3;
  constexpr size_t kEach = 20;
  OfiEnd from(kind());
  OfiEnd to(kind());
  const auto& source = from.memory(64, Access::kLocalRead, 7);
  const auto& sink = to.memory(64, Access::kRemoteWrite);
  std::array<OfiConnection, 1 + kOthers> all;
  for (OfiConnection& one : all) one = connect(from, to, {.paced = false});
  OfiLoad busy(from, all[0].a, source, sink.target());
  const auto others_have = [&](size_t count) {
    return std::all_of(all.begin() + 1, all.end(),
                       [&](const OfiConnection& other) { return from.finished(other.a) == count; });
  };
  const auto post_to_others = [&](uint64_t id) {
    for (size_t i = 1; i <= kOthers; ++i) {
      ASSERT_TRUE(from.post(all[i].a, OfiEnd::write(id, source, sink.target())));
    }
  };
  post_to_others(0);
  ASSERT_TRUE(run_until({&from, &to}, [&] {
    busy.top_up();
    return from.finished(all[0].a) >= 20 && others_have(1);
  }));
  const size_t before = from.finished(all[0].a);
  const Instant standing_still = monotonic_now();
  for (size_t turn = 1; turn <= kEach; ++turn) post_to_others(turn);
  while (!others_have(1 + kEach) && from.finished(all[0].a) < before + 1000) {
    busy.top_up();
    from.step(standing_still);
    to.step();
  }
  EXPECT_TRUE(others_have(1 + kEach));
}

}  // namespace
}  // namespace pacecar::waiting_test
