// Peers that come late, and peers that are lost before their connection is made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/bootstrap_pair.h"
#include "transport/engine/bootstrap/bootstrap.h"

namespace pacecar::late_test {
namespace {

using test::await_reply;
using test::BootstrapWorld;
using test::eventually;
using test::finish;
using testing::AllOf;
using testing::HasSubstr;
using State = BootstrapSession::State;

constexpr Duration kLate = BootstrapWorld::kTimeout * bootstrap::kLatePeer;
constexpr Duration kInstant = Duration::from_ns(1);

// Connected to the kernel of the listener, which is not polled.
std::unique_ptr<BootstrapConnector> connected(BootstrapWorld& world) {
  auto connector = world.connect({});
  for (int i = 0; i < 100; ++i) EXPECT_EQ(connector->poll(world.now), std::nullopt);
  return connector;
}

TEST(BootstrapLate, AConnectedListenerMayBePolledMuchLater) {
  BootstrapWorld world;
  auto connector = connected(world);
  world.now = world.now + kLate - kInstant;
  auto session = world.accept(*connector);
  session->reply({});
  EXPECT_TRUE(finish(*connector, world.now));
  EXPECT_EQ(finish(*session, world.now), State::kConfirmed);
}

TEST(BootstrapLate, AConnectorGivesUpOnAListenerThatIsNeverPolled) {
  BootstrapWorld world;
  auto connector = connected(world);
  EXPECT_THAT(
      connector->take_warning(world.now + bootstrap::kPatience),
      testing::Optional(HasSubstr("it is tried for 600 s (60 times PACECAR_CONNECT_TIMEOUT)")));
  const auto outcome = connector->poll(world.now + kLate);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, ErrorCode::kPeer);
  EXPECT_THAT(outcome.error().message, AllOf(HasSubstr("within 600 s"), HasSubstr("silent")));
}

TEST(BootstrapLate, TheTimeoutBeginsWhenALateListenerEnds) {
  BootstrapWorld world;
  auto connector = connected(world);
  world.now = world.now + BootstrapWorld::kTimeout * 30;
  EXPECT_EQ(connector->poll(world.now), std::nullopt);
  world.listener.reset();
  const Instant ended = world.now;
  Result<std::optional<test::Payload>> outcome;
  ASSERT_TRUE(eventually([&] {
    world.now = world.now + Duration::from_ms(5);
    outcome = connector->poll(world.now);
    return !outcome;
  }));
  EXPECT_THAT(outcome.error().message, HasSubstr("within 10 s (Connection refused)"));
  EXPECT_GE(world.now - ended, BootstrapWorld::kTimeout);
}

// The connector's time stands still: it is TCP that notices.
TEST(BootstrapLate, ALateListenersHostIsAskedWhetherItIsThere) {
  BootstrapWorld world;
  auto connector =
      BootstrapConnector::open(world.listener->handle(), {}, {}, Duration::from_s(1), {}, world.now)
          .value();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(connector->poll(world.now), std::nullopt);
  test::cut_off(world.port());
  std::unique_ptr<BootstrapSession> session;
  EXPECT_TRUE(eventually([&] {
    world.now = world.now + Duration::from_us(10);  // for the pause before the next attempt
    EXPECT_EQ(connector->poll(world.now), std::nullopt);
    session = world.listener->poll(world.now);
    return session != nullptr;
  })) << "no further attempt";
}

// Peers that have proved the secret.
struct Proved {
  Proved() : connector(world.connect({})), session(world.accept(*connector)) {}

  void lose(std::string_view how) {
    EXPECT_EQ(finish(*session, world.now), State::kFailed);
    EXPECT_EQ(session->failure().code, ErrorCode::kPeer);
    EXPECT_THAT(session->failure().message,
                AllOf(HasSubstr("the peer at 127.0.0.1:"), HasSubstr(std::string(how))));
    world.listener->lose(*session, world.now);
  }
  // The error of the listener's owner `later` than now.
  std::optional<Error> missing(Duration later) {
    return world.listener->take_missing(world.now + later);
  }

  BootstrapWorld world;
  std::unique_ptr<BootstrapConnector> connector;
  std::unique_ptr<BootstrapSession> session;
};

TEST(BootstrapLost, APeerThatEndsIsAnErrorOnce) {
  for (const bool answered : {false, true}) {
    Proved proved;
    if (answered) {
      proved.session->reply({});
      EXPECT_TRUE(await_reply(*proved.connector, proved.world.now));
    }
    proved.connector.reset();
    proved.lose("has ended or given up");
    EXPECT_FALSE(proved.missing(bootstrap::kPatience - kInstant));
    const auto error = proved.missing(bootstrap::kPatience);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->message, proved.session->failure().message);
    EXPECT_FALSE(proved.missing(kLate));
  }
}

TEST(BootstrapLost, APeerThatIsStoppedIsAnError) {
  Proved proved;
  proved.world.now = proved.world.now + BootstrapWorld::kTimeout;
  proved.lose("has fallen silent");
  EXPECT_TRUE(proved.missing(bootstrap::kPatience));
}

TEST(BootstrapLost, APeerThatWasRefusedIsAnErrorWithTheReason) {
  Proved proved;
  proved.session->refuse({ErrorCode::kUnavailable, "the MTU differs"});
  EXPECT_EQ(finish(*proved.session, proved.world.now), State::kFailed);
  proved.world.listener->lose(*proved.session, proved.world.now);
  EXPECT_EQ(proved.missing(bootstrap::kPatience)->message, "the MTU differs");
}

TEST(BootstrapLost, APeerThatCallsAgainIsNone) {
  Proved proved;
  proved.connector.reset();
  proved.lose("has ended or given up");
  auto again = proved.world.connect({});
  EXPECT_NE(proved.world.accept(*again), nullptr);
  EXPECT_FALSE(proved.missing(kLate));
}

TEST(BootstrapLost, NobodyIsAnErrorSixtyTimesTheTimeoutAfterTheFirstPoll) {
  BootstrapWorld world;
  world.now = world.now + kLate * 2;
  EXPECT_FALSE(world.listener->take_missing(world.now)) << "it was not polled";
  const Instant first = world.now;
  EXPECT_EQ(world.listener->poll(first), nullptr);
  { test::TcpEnd stranger(world.port()); }
  world.now = first + kLate - kInstant;
  EXPECT_TRUE(world.drops(1));
  EXPECT_FALSE(world.listener->take_missing(world.now));
  const auto error = world.listener->take_missing(first + kLate);
  ASSERT_TRUE(error);
  EXPECT_THAT(error->message,
              HasSubstr("within 600 s (60 times PACECAR_CONNECT_TIMEOUT): look for the"));
  EXPECT_FALSE(world.listener->take_missing(first + kLate * 2));
}

}  // namespace
}  // namespace pacecar::late_test
