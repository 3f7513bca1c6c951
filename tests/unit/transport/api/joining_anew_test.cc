// A connection joins a flow that another connection made. The flow may end before the peer answers.
#include <gmock/gmock.h>
#include <sched.h>

#include "tests/support/joining_process.h"
#include "transport/engine/bootstrap/bootstrap.h"
#include "transport/engine/clock.h"

namespace pacecar::test::joining_anew_test {
namespace {

// The parameter: NICs of each device.
class JoiningAnew : public testing::TestWithParam<size_t> {
 protected:
  // Connects to a listener of its own, which does not accept yet.
  struct Attempt {
    std::unique_ptr<Listener> listener;
    std::unique_ptr<Connecting> connecting;
  };
  Attempt attempt() {
    Attempt made{.listener = to_.context().listen(0).value(), .connecting = nullptr};
    made.connecting = from_.context().connect(0, made.listener->handle()).value();
    EXPECT_EQ(made.connecting->poll().value(), nullptr);  // sends the offer
    return made;
  }
  Result<Ends> finish(Attempt& attempt) {
    return test::finish(*attempt.connecting, *attempt.listener);
  }
  // Both ends of the flow's connections must be closed.
  void await_end_of_flows_at_the_peer() {
    while (to_.context().statistics(0).flows > 0) sched_yield();
  }
  // Counts the offers to a peer that refuses every offer.
  size_t offers_refused_for(const Error& reason) {
    const auto known = bootstrap::parse_handle({to_.context().listen(0).value()->handle().bytes});
    Address address = known->address;
    address.port = 0;
    const auto listener =
        BootstrapListener::open(address, known->identity, Duration::from_s(10), {}).value();
    const auto connecting = from_.context().connect(0, {listener->handle().bytes}).value();
    std::vector<std::unique_ptr<BootstrapSession>> sessions;
    Result<std::unique_ptr<SendConnection>> made = nullptr;
    while (made) {
      made = connecting->poll();
      if (auto session = listener->poll(clock_now())) {
        session->refuse(reason);
        sessions.push_back(std::move(session));
      }
      for (auto& session : sessions) session->poll(clock_now());
    }
    EXPECT_THAT(made.error().message,
                testing::HasSubstr("refused this connection: " + reason.message));
    return sessions.size();
  }
  void expect_made(Attempt& attempt) {
    const auto ends = finish(attempt);
    ASSERT_TRUE(ends) << ends.error().message;
    expect_carries(from_.context(), to_.context(), *ends);
  }

  const std::vector<Networks> device_ = std::vector<Networks>(GetParam(), {"soft"});
  Process from_{{device_}};
  Process to_{{device_}};
};

INSTANTIATE_TEST_SUITE_P(Nics, JoiningAnew, testing::Values(1, 2));

TEST_P(JoiningAnew, ConnectionIsMadeIfThePeerHasEndedTheSharedFlow) {
  auto first = connect(from_.context(), 0, to_.context(), 0).value();
  Attempt second = attempt();
  first = {};
  await_end_of_flows_at_the_peer();
  expect_made(second);
  // The offer that was refused is not an error later.
  const Instant end = clock_now() + bootstrap::kPatience + Duration::from_ms(100);
  while (clock_now() < end) ASSERT_TRUE(second.listener->accept());
}

// The second attempt is offered while the flow that it is to share is not yet complete.
TEST_P(JoiningAnew, ConnectionIsMadeIfThePeerHasMadeAndEndedTheFlowMeanwhile) {
  Attempt first = attempt();
  Attempt second = attempt();
  EXPECT_TRUE(finish(first));
  await_end_of_flows_at_the_peer();
  expect_made(second);
}

TEST_P(JoiningAnew, StaleConnectionIsOfferedOnceMoreOnly) {
  const auto first = connect(from_.context(), 0, to_.context(), 0).value();
  EXPECT_EQ(offers_refused_for({ErrorCode::kStale, "not today"}), 2U);
  expect_carries(from_.context(), to_.context(), first);
}

// The flow is healthy, and later connections share it.
TEST_P(JoiningAnew, OtherRefusalsAreFinalAndTheFlowStaysShared) {
  const auto first = connect(from_.context(), 0, to_.context(), 0).value();
  const uint64_t flows = from_.context().statistics(0).flows;
  EXPECT_EQ(offers_refused_for({ErrorCode::kUnavailable, "not today"}), 1U);
  const auto second = connect(from_.context(), 0, to_.context(), 0).value();
  EXPECT_EQ(from_.context().statistics(0).flows, flows);
}

}  // namespace
}  // namespace pacecar::test::joining_anew_test
