// Connections between messengers whose NICs reopen their endpoints: in real time, on providers that
// every machine has. A missing provider is skipped.
#include "transport/message/messenger.h"

#include <gtest/gtest.h>

#include "tests/support/over_ofi.h"
#include "transport/engine/poll_loop.h"

namespace pacecar::messenger_test {
namespace {

using test::monotonic_now;
using test::need;
using test::OfiEnd;

class OfiMessengerTest : public test::OverOfi {
 protected:
  struct Host {
    explicit Host(uint8_t number)
        : identity{number},
          end(kind()),
          messenger(need(Messenger::create(
              end.nic(),
              {.identity = identity, .line_rate = Rate::from_gbps(10), .max_connections = 16},
              monotonic_now()))),
          loop(end.nic(), *messenger) {}
    void step() {
      const Instant now = monotonic_now();
      loop.receive(now);
      loop.advance(now);
    }

    NicIdentity identity;
    OfiEnd end;
    std::unique_ptr<Messenger> messenger;
    PollLoop loop;
  };

  // Connects without a turn of either NIC.
  static Result<ConnectionId> connect(Host& from, Host& to) {
    const Instant now = monotonic_now();
    const auto offered = need(from.messenger->open_send(to.identity, now));
    const auto answered = to.messenger->open_receive(offered.offer, now);
    if (!answered) {
      EXPECT_TRUE(from.messenger->suspect_flow(offered.connection, answered.error().code, now));
      from.messenger->close_send(offered.connection, now);
      return tl::unexpected(answered.error());
    }
    const auto done = from.messenger->finish_send(offered.connection, answered->answer, now);
    if (!done) return tl::unexpected(done.error());
    return offered.connection;
  }
  static void expect_open(Host& from, Host& to, const Result<ConnectionId>& connection) {
    ASSERT_TRUE(connection) << connection.error().message;
    for (int i = 0; i < 100; ++i) {
      from.step();
      to.step();
    }
    EXPECT_EQ(from.messenger->lanes(Direction::kSend).lane(*connection).failure,
              MessageFailure::kNone)
        << from.messenger->lanes(Direction::kSend).fault(*connection);
  }
};

INSTANTIATE_TEST_SUITE_P(Over, OfiMessengerTest, test::every_ofi_kind(), test::ofi_kind_name);

TEST_P(OfiMessengerTest, BrokenFlowIsNotSharedBeforeItsFailureIsPolled) {
  Host host(1);
  expect_open(host, host, connect(host, host));
  host.end.nic().reopen_endpoints("the cable was pulled");
  expect_open(host, host, connect(host, host));
}

TEST_P(OfiMessengerTest, FlowThatHasBrokenAtThePeerIsNotShared) {
  Host from(1);
  Host to(2);
  expect_open(from, to, connect(from, to));
  to.end.nic().reopen_endpoints("the cable was pulled");
  // The first offer names the old flow and is refused; the second makes a new one.
  EXPECT_FALSE(connect(from, to));
  expect_open(from, to, connect(from, to));
}

}  // namespace
}  // namespace pacecar::messenger_test
