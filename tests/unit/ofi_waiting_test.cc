// What waits in a libfabric NIC until its turn comes, on providers that every machine has. A
// provider that is not there is skipped.
#include <gtest/gtest.h>

#include "tests/support/over_ofi.h"

namespace pacecar {
namespace {

using test::monotonic_now;
using test::OfiConnection;
using test::OfiEnd;
using test::run_until;

class OfiWaitingTest : public test::OverOfi {};

INSTANTIATE_TEST_SUITE_P(Over, OfiWaitingTest, test::every_ofi_kind(), test::ofi_kind_name);

// Each write that is over is told of by a message, and the peer does not say that it takes them.
TEST_P(OfiWaitingTest, PeerThatIsSlowToTakeMessagesIsWaitedFor) {
  constexpr uint32_t kWrites = 400;
  OfiEnd from(kind());
  OfiEnd to(kind(), Duration::from_s(10), 1, OfiTelling::kAfterDelivery);
  const OfiConnection ends = connect(from, to, {.work_requests = kWrites});
  const auto& source = from.memory(64, Access::kLocalRead, 7);
  const auto& sink = to.memory(64, Access::kRemoteWrite);
  for (uint64_t id = 0; id < kWrites; ++id) {
    ASSERT_TRUE(from.post(ends.a, OfiEnd::write(id, source, sink.target())));
  }
  ASSERT_TRUE(run_until({&from, &to}, [&] { return to.received(ends.b) > 0; }));
  for (int turn = 0; turn < 20'000; ++turn) {
    from.step();
    to.nic().receive(monotonic_now());
  }
  EXPECT_TRUE(run_until({&from, &to}, [&] {
    return to.received(ends.b) == kWrites || from.broken(ends.a) != nullptr;
  }));
  EXPECT_EQ(from.broken(ends.a), nullptr) << from.nic().fault(ends.a);
}

}  // namespace
}  // namespace pacecar
