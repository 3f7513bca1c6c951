// The bootstrap between peers that keep to the protocol; bootstrap_stranger_test.cc has the others.
#include "transport/engine/bootstrap/bootstrap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/bootstrap_pair.h"
#include "tests/support/descriptor_limit.h"
#include "tests/support/own_network.h"
#include "transport/wire/address.h"

namespace pacecar::bootstrap_test {
namespace {

using test::await_reply;
using test::BootstrapWorld;
using test::confirm;
using test::eventually;
using test::finish;
using test::pattern;
using test::Payload;
using testing::HasSubstr;
using State = BootstrapSession::State;

void expect_exchange(BootstrapWorld& world, const Payload& offer, const Payload& answer) {
  auto connector = world.connect(offer);
  auto session = world.accept(*connector);
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(Payload(session->offer().begin(), session->offer().end()), offer);
  session->reply(answer);
  EXPECT_EQ(await_reply(*connector, world.now), answer);
  EXPECT_EQ(session->poll(world.now), State::kWaiting) << "the connector has not confirmed yet";
  EXPECT_TRUE(confirm(*connector, world.now));
  EXPECT_EQ(finish(*session, world.now), State::kConfirmed);
}

TEST(Bootstrap, PayloadsArriveExactlyBothWays) {
  BootstrapWorld world;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{300}, kMaxBootstrapPayload}) {
    expect_exchange(world, pattern(size, 1), pattern(kMaxBootstrapPayload - size, 2));
  }
  EXPECT_EQ(world.listener->strangers(), 0U);
}

TEST(Bootstrap, WorksOverIpv6) {
  const Address local{.ip = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  if (!bootstrap::Socket::listen_on(local)) GTEST_SKIP() << "this host has no IPv6 loopback";
  BootstrapWorld world(local);
  expect_exchange(world, pattern(100, 1), pattern(200, 2));
  EXPECT_EQ(world.connect({})->peer(), "[::1]:" + std::to_string(world.port()));
}

TEST(Bootstrap, ConnectsManyPeersAtOnce) {
  constexpr uint8_t kPeers = 80;  // more than the listener has in the handshake at once
  BootstrapWorld world;
  std::vector<std::unique_ptr<BootstrapConnector>> connectors;
  for (uint8_t i = 0; i < kPeers; ++i) connectors.push_back(world.connect({i}));

  std::vector<std::unique_ptr<BootstrapSession>> sessions;
  std::vector<std::optional<Payload>> replies(kPeers);
  ASSERT_TRUE(eventually([&] {
    if (auto session = world.listener->poll(world.now)) {
      const uint8_t who = session->offer()[0];
      session->reply(Payload{who, uint8_t(who + 1)});
      sessions.push_back(std::move(session));
    }
    size_t done = 0;
    for (size_t i = 0; i < kPeers; ++i) {
      if (!replies[i]) replies[i] = connectors[i]->poll(world.now).value();
      done += replies[i].has_value();
    }
    return done == kPeers;
  }));
  ASSERT_EQ(sessions.size(), kPeers);
  for (auto& connector : connectors) EXPECT_TRUE(confirm(*connector, world.now));
  for (auto& session : sessions) EXPECT_EQ(finish(*session, world.now), State::kConfirmed);
  for (uint8_t i = 0; i < kPeers; ++i) EXPECT_EQ(replies[i], (Payload{i, uint8_t(i + 1)}));
}

TEST(Bootstrap, SessionOutlivesItsListener) {
  BootstrapWorld world;
  auto connector = world.connect(pattern(50, 1));
  auto session = world.accept(*connector);
  world.listener.reset();
  session->reply(pattern(60, 2));
  EXPECT_EQ(finish(*connector, world.now), pattern(60, 2));
  EXPECT_EQ(finish(*session, world.now), State::kConfirmed);
}

TEST(Bootstrap, BothEndsReportThePeersAddress) {
  BootstrapWorld world;
  auto connector = world.connect({});
  EXPECT_EQ(connector->peer(), "127.0.0.1:" + std::to_string(world.port()));
  EXPECT_THAT(world.accept(*connector)->peer(), testing::StartsWith("127.0.0.1:"));
}

TEST(Bootstrap, ConnectorBindsToTheGivenLocalIp) {
  BootstrapWorld world;
  Address local = test::ipv4_loopback(4791);  // the port does not count
  local.ip.back() = 2;
  auto connector = world.connect({}, local);
  EXPECT_THAT(world.accept(*connector)->peer(), testing::StartsWith("127.0.0.2:"));
  // A local address of the other IP version is ignored.
  connector = world.connect({}, {.ip = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}});
  EXPECT_THAT(world.accept(*connector)->peer(), testing::StartsWith("127.0.0.1:"));
}

TEST(Bootstrap, BindFailureNamesTheLocalAddress) {
  BootstrapWorld world;
  const Address elsewhere{.ip = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 51, 100, 77}};
  const auto opened = BootstrapConnector::open(world.listener->handle(), elsewhere, {},
                                               BootstrapWorld::kTimeout, {}, world.now);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(opened.error().message, HasSubstr("from 198.51.100.77"));
}

// A connector whose offer is refused.
struct Refused {
  explicit Refused(const Error& reason) {
    session->refuse(reason);
    const auto outcome = finish(*connector, world.now);
    EXPECT_FALSE(outcome);
    if (!outcome) error = outcome.error();
  }

  BootstrapWorld world;
  std::unique_ptr<BootstrapConnector> connector = world.connect({});
  std::unique_ptr<BootstrapSession> session = world.accept(*connector);
  Error error{};
};

TEST(Bootstrap, RefusalReachesTheConnectorInOneLine) {
  Refused refused({ErrorCode::kUnavailable, "the MTU differs:\n1024 here"});
  EXPECT_EQ(refused.error.code, ErrorCode::kPeer);
  EXPECT_THAT(refused.error.message, HasSubstr("the MTU differs:?1024 here"));
  EXPECT_THAT(refused.error.message, HasSubstr(refused.connector->peer()));
  EXPECT_EQ(finish(*refused.session, refused.world.now), State::kFailed);
}

TEST(Bootstrap, StaleRefusalKeepsItsErrorCode) {
  const Refused refused({ErrorCode::kStale, "the flow has ended"});
  EXPECT_EQ(refused.error.code, ErrorCode::kStale);
  EXPECT_THAT(refused.error.message, HasSubstr("the flow has ended"));
}

TEST(Bootstrap, SessionFailsWithoutConfirmation) {
  BootstrapWorld world;
  auto silent = world.connect({});
  auto leaver = world.connect({});
  auto from_silent = world.accept(*silent);
  auto from_leaver = world.accept(*leaver);
  for (auto* session : {from_silent.get(), from_leaver.get()}) session->reply({});

  EXPECT_TRUE(await_reply(*leaver, world.now));
  leaver.reset();
  EXPECT_EQ(finish(*from_leaver, world.now), State::kFailed);

  const Instant deadline = world.now + BootstrapWorld::kTimeout;
  EXPECT_EQ(from_silent->poll(deadline - Duration::from_ns(1)), State::kWaiting);
  EXPECT_EQ(from_silent->poll(deadline), State::kFailed);
}

TEST(Bootstrap, ConnectorFailsWhenTheSessionIsDestroyed) {
  BootstrapWorld world;
  auto connector = world.connect({});
  world.accept(*connector).reset();
  const auto outcome = finish(*connector, world.now);
  ASSERT_FALSE(outcome);
  EXPECT_THAT(outcome.error().message, HasSubstr("closed the connection before it answered"));
}

// A connector without a listener retries until its timeout.
void expect_connect_times_out() {
  BootstrapWorld world;
  world.listener.reset();
  auto connector = world.connect_through(world.port(), {});
  const Instant deadline = world.now + BootstrapWorld::kTimeout;
  while (world.now < deadline) {
    ASSERT_EQ(connector->poll(world.now), std::nullopt);
    world.now = world.now + Duration::from_ms(5);
  }
  const auto outcome = connector->poll(world.now);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, ErrorCode::kPeer);
  EXPECT_THAT(outcome.error().message, HasSubstr(connector->peer()));
  EXPECT_THAT(outcome.error().message, HasSubstr("within 10 s (Connection refused)"));
}

TEST(Bootstrap, ConnectingWithoutAListenerTimesOut) { expect_connect_times_out(); }

TEST(Bootstrap, ConnectorWarnsOnceAfterThreeSecondsWithBothAddresses) {
  BootstrapWorld world;
  const BootstrapHandle handle = world.listener->handle();
  world.listener.reset();
  auto connector = BootstrapConnector::open(handle, test::ipv4_loopback(), {},
                                            BootstrapWorld::kTimeout, {}, world.now)
                       .value();
  ASSERT_EQ(connector->poll(world.now), std::nullopt);
  EXPECT_EQ(connector->take_warning(world.now + Duration::from_ms(2900)), std::nullopt);
  world.now = world.now + bootstrap::kPatience;
  ASSERT_EQ(connector->poll(world.now), std::nullopt);
  EXPECT_THAT(connector->take_warning(world.now),
              testing::Optional(testing::AllOf(
                  HasSubstr("from 127.0.0.1 to the listener at " + connector->peer() + " (TCP)"),
                  HasSubstr("for 3 s (Connection refused)"), HasSubstr("another host"))));
  EXPECT_EQ(connector->take_warning(world.now + bootstrap::kPatience), std::nullopt);
}

TEST(Bootstrap, ListenerIsLonelyOnceAfterThreeSecondsWithoutACaller) {
  BootstrapWorld alone;
  EXPECT_FALSE(alone.listener->lonely(alone.now + Duration::from_s(9))) << "it was not polled";
  EXPECT_EQ(alone.listener->poll(alone.now), nullptr);
  EXPECT_FALSE(alone.listener->lonely(alone.now + Duration::from_ms(2900)));
  EXPECT_TRUE(alone.listener->lonely(alone.now + bootstrap::kPatience));
  EXPECT_FALSE(alone.listener->lonely(alone.now + Duration::from_s(9)));

  BootstrapWorld called;
  auto connector = called.connect({});
  EXPECT_NE(called.accept(*connector), nullptr);
  EXPECT_FALSE(called.listener->lonely(called.now + Duration::from_s(9)));
}

TEST(Bootstrap, AListenerIsUnansweredUntilAnythingComesFromItsHost) {
  BootstrapWorld world;
  auto connector = world.connect({});
  EXPECT_TRUE(connector->unanswered());
  EXPECT_TRUE(eventually([&] {
    EXPECT_EQ(connector->poll(world.now), std::nullopt);
    return !connector->unanswered();
  })) << "the kernel accepts for a listener that is not polled";
  world.listener.reset();
  connector = world.connect_through(world.port(), {});
  ASSERT_EQ(connector->poll(world.now), std::nullopt);
  EXPECT_FALSE(connector->unanswered()) << "it is refused";
}

TEST(Bootstrap, ConnectorWaitsForARoute) {
  test::in_network(test::enter_own_network, [] {
    BootstrapWorld world;
    auto contents = bootstrap::parse_handle(world.listener->handle()).value();
    contents.address.ip[12] = 192;  // 192.0.0.1: this network has a loopback only
    const auto connector = BootstrapConnector::open(bootstrap::encode_handle(contents), {}, {},
                                                    BootstrapWorld::kTimeout, {}, world.now);
    ASSERT_TRUE(connector) << connector.error().message;
    for (int i = 0; i < 100; ++i) ASSERT_EQ((*connector)->poll(world.now), std::nullopt);
    EXPECT_TRUE((*connector)->unanswered());
    EXPECT_THAT((*connector)->take_warning(world.now + bootstrap::kPatience),
                testing::Optional(HasSubstr("have no route to each other")));
  });
}

TEST(Bootstrap, ConnectorDoesNotConnectToItself) {
  test::in_network(test::enter_network_with_one_local_port, expect_connect_times_out);
}

TEST(Bootstrap, ConnectorWaitsForALateListener) {
  BootstrapWorld world;
  uint16_t port;
  {
    test::TcpServer nobody;
    port = nobody.port();
  }
  auto connector = world.connect_through(port, {});
  for (int i = 0; i < 100; ++i) ASSERT_EQ(connector->poll(world.now), std::nullopt);

  test::TcpRelay relay(world.port(), test::TcpRelay::Way::kToServer, test::TcpRelay::kNever, port);
  std::unique_ptr<BootstrapSession> session;
  EXPECT_TRUE(eventually([&] {
    world.now = world.now + Duration::from_us(10);
    EXPECT_EQ(connector->poll(world.now), std::nullopt);
    relay.step();
    session = world.listener->poll(world.now);
    return session != nullptr;
  }));
}

// A listener drops a connector whose proof comes too late, though its owner may only have polled
// late.
TEST(Bootstrap, ConnectorReconnectsAfterTheListenerDropsIt) {
  BootstrapWorld world(test::ipv4_loopback(), Duration::from_s(2));
  auto connector = world.connect(pattern(10, 1));
  // Let the hello arrive and the challenge go out; then the connector is not polled.
  for (int i = 0; i < 100; ++i) ASSERT_EQ(connector->poll(world.now), std::nullopt);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(world.listener->poll(world.now), nullptr);
  world.now = world.now + Duration::from_s(2);
  ASSERT_TRUE(world.drops(1));
  std::unique_ptr<BootstrapSession> session;
  ASSERT_TRUE(eventually([&] {
    world.now = world.now + Duration::from_us(10);
    EXPECT_EQ(connector->poll(world.now), std::nullopt);
    session = world.listener->poll(world.now);
    return session != nullptr;
  }));
  EXPECT_EQ(session->offer().size(), 10U);
}

bootstrap::ClusterKey cluster_key(uint8_t seed) { return {pattern(32, seed)}; }

BootstrapWorld world_with(const bootstrap::ClusterKey& key) {
  return BootstrapWorld(test::ipv4_loopback(), BootstrapWorld::kTimeout, key);
}

TEST(BootstrapKey, ProcessesWithTheSameKeyConnect) {
  BootstrapWorld world = world_with(cluster_key(1));
  auto connector = world.connect(pattern(20, 1), {}, cluster_key(1));
  auto session = world.accept(*connector);
  ASSERT_NE(session, nullptr);
  session->reply(pattern(30, 2));
  EXPECT_EQ(finish(*connector, world.now), pattern(30, 2));
  EXPECT_EQ(finish(*session, world.now), State::kConfirmed);
  EXPECT_EQ(world.listener->take_warning(), std::nullopt);
}

void expect_both_report_the_key(const bootstrap::ClusterKey& listener,
                                const bootstrap::ClusterKey& connector) {
  const auto names_peer_and_key = [](std::string_view peer, const bootstrap::ClusterKey& own) {
    return testing::AllOf(
        HasSubstr(std::string(peer)),
        HasSubstr("let PACECAR_KEY_FILE name the same key on both hosts"),
        HasSubstr(own ? "or not the cluster key that PACECAR_KEY_FILE names here"
                      : "or has a cluster key, and here PACECAR_KEY_FILE is unset"));
  };
  BootstrapWorld world = world_with(listener);
  auto caller = world.connect(pattern(20, 1), {}, connector);
  Result<std::optional<Payload>> outcome;
  ASSERT_TRUE(world.poll_until([&] {
    outcome = caller->poll(world.now);
    return !outcome;
  }));
  EXPECT_EQ(outcome.error().code, ErrorCode::kPeer);
  EXPECT_THAT(outcome.error().message,
              names_peer_and_key("the listener at " + caller->peer(), connector));
  EXPECT_TRUE(world.drops(1));
  EXPECT_THAT(world.listener->take_warning().value_or(""),
              names_peer_and_key("the caller at 127.0.0.1:", listener));
}

TEST(BootstrapKey, ProcessesWithDifferentKeysDoNotConnect) {
  expect_both_report_the_key(cluster_key(1), cluster_key(2));
}

TEST(BootstrapKey, ConnectorWithoutTheListenersKeyIsRefused) {
  expect_both_report_the_key(cluster_key(1), {});
}

TEST(BootstrapKey, ListenerWithoutAKeyRefusesAConnectorWithOne) {
  expect_both_report_the_key({}, cluster_key(1));
}

TEST(Bootstrap, ListenerNeedsALocalAddress) {
  const auto unspecified = BootstrapListener::open(Address{}, {}, BootstrapWorld::kTimeout, {});
  ASSERT_FALSE(unspecified);
  EXPECT_EQ(unspecified.error().code, ErrorCode::kInvalidArgument);

  Address elsewhere = test::ipv4_loopback();  // 192.0.2.1, of no host (RFC 5737)
  elsewhere.ip[12] = 192;
  elsewhere.ip[14] = 2;
  const auto missing = BootstrapListener::open(elsewhere, {}, BootstrapWorld::kTimeout, {});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("192.0.2.1"));
}

TEST(Bootstrap, BusyPortIsAnError) {
  BootstrapWorld world;
  const auto second =
      BootstrapListener::open(test::ipv4_loopback(world.port()), {}, BootstrapWorld::kTimeout, {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
}

TEST(Bootstrap, ListenerWithoutADescriptorNamesTheLimit) {
  const test::DescriptorLimit none;
  const auto listener =
      BootstrapListener::open(test::ipv4_loopback(), {}, BootstrapWorld::kTimeout, {});
  ASSERT_FALSE(listener);
  EXPECT_THAT(listener.error().message, HasSubstr("limit of open files"));
}

// Two ports are enough for any number of connections, one after the other.
TEST(Bootstrap, ListensInTheRangeOfPorts) {
  // Below the ports that the system chooses, for connectors too.
  const auto first = static_cast<uint16_t>(20'000 + getpid() % 10'000);
  const bootstrap::Reach reach{.ports = {first, static_cast<uint16_t>(first + 1)}};
  std::vector<std::unique_ptr<BootstrapSession>> sessions;
  std::vector<std::unique_ptr<BootstrapConnector>> connectors;
  for (int i = 0; i < 5; ++i) {
    BootstrapWorld world;
    world.listener =
        BootstrapListener::open(test::ipv4_loopback(), {}, BootstrapWorld::kTimeout, {}, reach)
            .value();
    const uint16_t port = world.listener->address().port;
    EXPECT_TRUE(port == first || port == first + 1);
    connectors.push_back(world.connect({}));
    sessions.push_back(world.accept(*connectors.back()));
    ASSERT_NE(sessions.back(), nullptr);
  }
  std::vector<std::unique_ptr<BootstrapListener>> listeners;
  const auto open = [&] {
    return BootstrapListener::open(test::ipv4_loopback(), {}, BootstrapWorld::kTimeout, {}, reach);
  };
  for (int i = 0; i < 2; ++i) listeners.push_back(open().value());
  const auto refused = open();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("PACECAR_PORTS"));
}

TEST(Bootstrap, ListensAtAllAddressesAndNamesOne) {
  BootstrapWorld world;
  world.listener = BootstrapListener::open(test::ipv4_loopback(), {}, BootstrapWorld::kTimeout, {},
                                           {.all_addresses = true})
                       .value();
  auto contents = bootstrap::parse_handle(world.listener->handle()).value();
  EXPECT_EQ(ip_to_string(contents.address), "127.0.0.1");
  contents.address.ip.back() = 7;
  auto connector = BootstrapConnector::open(bootstrap::encode_handle(contents), {}, {},
                                            BootstrapWorld::kTimeout, {}, world.now)
                       .value();
  EXPECT_NE(world.accept(*connector), nullptr);
}

TEST(BootstrapHandle, CarriesAddressSecretAndIdentity) {
  bootstrap::HandleContents contents{.address = {.port = 65535}, .identity = {1, 2, 32}};
  std::ranges::copy(pattern(16, 3), contents.address.ip.begin());
  std::ranges::copy(pattern(16, 9), contents.secret.begin());
  const auto parsed = bootstrap::parse_handle(bootstrap::encode_handle(contents));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->address, contents.address);
  EXPECT_EQ(parsed->secret, contents.secret);
  EXPECT_EQ(parsed->identity, contents.identity);
}

TEST(BootstrapHandle, RejectsBytesThatAreNoHandle) {
  const BootstrapHandle zeros;
  const auto opened = BootstrapConnector::open(zeros, {}, {}, Duration::from_s(1), {}, Instant());
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(opened.error().message, HasSubstr("not the handle"));
}

TEST(BootstrapHandle, RejectsEveryDamagedByte) {
  BootstrapWorld world;
  for (size_t i = 0; i < sizeof(BootstrapHandle::bytes); ++i) {
    BootstrapHandle damaged = world.listener->handle();
    damaged.bytes[i] ^= 0x40;
    EXPECT_FALSE(bootstrap::parse_handle(damaged)) << "byte " << i;
  }
}

TEST(BootstrapHandle, CutHandleIsReportedAsDamaged) {
  BootstrapWorld world;
  BootstrapHandle cut = world.listener->handle();
  std::fill(cut.bytes.begin() + 64, cut.bytes.end(), uint8_t{0});
  EXPECT_THAT(bootstrap::parse_handle(cut).error().message, HasSubstr("damaged or cut short"));
}

TEST(BootstrapHandle, VersionMismatchNamesBothVersions) {
  BootstrapWorld world;
  BootstrapHandle other = world.listener->handle();
  other.bytes[7] = 9;
  EXPECT_THAT(bootstrap::parse_handle(other).error().message,
              HasSubstr("version 9, this process speaks version 5"));
}

}  // namespace
}  // namespace pacecar::bootstrap_test
