// The bootstrap against callers and listeners that do not follow the protocol or do not know the
// secret.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/bootstrap_pair.h"
#include "tests/support/descriptor_limit.h"
#include "transport/engine/bootstrap/bootstrap.h"

namespace pacecar::stranger_test {
namespace {

using bootstrap::encode_frame;
using bootstrap::Frame;
using bootstrap::FrameType;
using bootstrap::Handshake;
using bootstrap::handshake_key;
using test::BootstrapWorld;
using test::confirm;
using test::eventually;
using test::finish;
using test::pattern;
using test::Payload;
using test::TcpEnd;
using test::TcpRelay;
using test::TcpServer;
using testing::AllOf;
using testing::HasSubstr;
using State = BootstrapSession::State;

constexpr size_t kMaxCallers = 64;  // handshakes at once
constexpr Duration kGrace = Duration::from_ms(100);

std::span<const uint8_t> bytes_of(const Frame& frame) {
  return std::span(frame.bytes).first(frame.size);
}

void expect_good_peer_gets_through(BootstrapWorld& world) {
  auto connector = world.connect(pattern(20, 1));
  auto session = world.accept(*connector);
  ASSERT_NE(session, nullptr);
  session->reply(pattern(30, 2));
  EXPECT_EQ(finish(*connector, world.now), pattern(30, 2));
  EXPECT_EQ(finish(*session, world.now), State::kConfirmed);
}

// Sends a hello and returns the handshake of a caller with `secret`, with the listener's nonce.
Handshake begin(BootstrapWorld& world, TcpEnd& caller, const bootstrap::Secret& secret) {
  Handshake handshake{.key = handshake_key(secret, {})};
  caller.send(bytes_of(encode_frame(FrameType::kHello, handshake.connector_nonce)));
  Payload challenge;
  EXPECT_TRUE(world.poll_until([&] {
    const auto more = caller.receive();
    if (more) challenge.insert(challenge.end(), more->begin(), more->end());
    return challenge.size() == bootstrap::kHeaderBytes + 32 + 16;
  }));
  const auto nonce = std::span<const uint8_t>(challenge).last(16);
  handshake.listener_nonce = *bootstrap::parse_nonce(nonce);
  return handshake;
}

bool is_closed(TcpEnd& end) {
  for (;;) {
    const auto bytes = end.receive();
    if (!bytes) return true;
    if (bytes->empty()) return false;
  }
}

TEST(BootstrapStranger, GarbageIsDroppedAtOnce) {
  BootstrapWorld world;
  TcpEnd caller(world.port());
  caller.send(pattern(100, 0x41));
  EXPECT_TRUE(world.drops(1));
  expect_good_peer_gets_through(world);
}

TEST(BootstrapStranger, ScannersAreDropped) {
  BootstrapWorld world;
  TcpEnd(world.port()).close();
  TcpEnd(world.port()).reset();
  TcpEnd half(world.port());
  half.send(bytes_of(encode_frame(FrameType::kHello, bootstrap::Nonce{})).first(13));
  half.close();
  EXPECT_TRUE(world.drops(3));
  expect_good_peer_gets_through(world);
}

TEST(BootstrapStranger, WrongSecretIsDropped) {
  BootstrapWorld world;
  TcpEnd caller(world.port());
  auto handshake = begin(world, caller, {});
  caller.send(bytes_of(handshake.seal(FrameType::kOffer, pattern(10, 1))));
  EXPECT_TRUE(world.drops(1));
  EXPECT_TRUE(eventually([&] { return is_closed(caller); }));
}

TEST(BootstrapStranger, RepeatedWrongSecretsAreLoggedOncePerTenSeconds) {
  BootstrapWorld world;
  const auto strangers_come = [&](uint64_t strangers) {
    for (uint64_t more = 0; more < strangers; ++more) {
      TcpEnd caller(world.port());
      auto handshake = begin(world, caller, {});
      caller.send(bytes_of(handshake.seal(FrameType::kOffer, {})));
      ASSERT_TRUE(world.drops(world.listener->strangers() + 1));
    }
  };
  strangers_come(3);
  EXPECT_THAT(world.listener->take_warning().value_or(""), HasSubstr("the caller at 127.0.0.1:"));
  world.now = world.now + Duration::from_s(10) - Duration::from_ns(1);
  strangers_come(1);
  EXPECT_EQ(world.listener->take_warning(), std::nullopt);
  world.now = world.now + Duration::from_ns(1);
  strangers_come(1);
  EXPECT_NE(world.listener->take_warning(), std::nullopt);
}

TEST(BootstrapStranger, CallersWithoutADescriptorForThemAreLogged) {
  BootstrapWorld world;
  const TcpEnd caller(world.port());
  const test::DescriptorLimit none;
  EXPECT_EQ(world.listener->poll(world.now), nullptr);
  EXPECT_THAT(world.listener->take_warning().value_or(""),
              AllOf(HasSubstr("cannot accept callers"), HasSubstr("ulimit -n")));
}

TEST(BootstrapStranger, ScannersAreNotLogged) {
  BootstrapWorld world;
  TcpEnd(world.port()).close();
  TcpEnd caller(world.port());
  begin(world, caller, world.contents.secret);
  caller.close();
  EXPECT_TRUE(world.drops(2));
  EXPECT_EQ(world.listener->take_warning(), std::nullopt);
}

TEST(BootstrapStranger, ReplayedOfferIsDropped) {
  BootstrapWorld world;
  TcpEnd first(world.port());
  const auto handshake = begin(world, first, world.contents.secret);
  const Frame offer = handshake.seal(FrameType::kOffer, pattern(10, 1));
  first.send(bytes_of(offer));
  ASSERT_TRUE(eventually([&] { return world.listener->poll(world.now) != nullptr; }));

  TcpEnd second(world.port());
  begin(world, second, world.contents.secret);
  second.send(bytes_of(offer));
  EXPECT_TRUE(world.drops(1));
}

TEST(BootstrapStranger, OversizeFramesAreRejectedByTheirHeader) {
  BootstrapWorld world;
  TcpEnd hello(world.port());
  auto header = encode_frame(FrameType::kHello, bootstrap::Nonce{});
  header.bytes[7] += 1;
  hello.send(bytes_of(header).first(bootstrap::kHeaderBytes));
  EXPECT_TRUE(world.drops(1));

  TcpEnd offer(world.port());
  const auto handshake = begin(world, offer, world.contents.secret);
  header = handshake.seal(FrameType::kOffer, Payload(kMaxBootstrapPayload));
  header.bytes[7] += 1;
  offer.send(bytes_of(header).first(bootstrap::kHeaderBytes));
  EXPECT_TRUE(world.drops(2));
}

TEST(BootstrapStranger, FramesOutOfTurnAreRejected) {
  BootstrapWorld world;
  TcpEnd caller(world.port());
  const Handshake handshake{.key = handshake_key(world.contents.secret, {})};
  caller.send(bytes_of(handshake.seal(FrameType::kOffer, {})));
  EXPECT_TRUE(world.drops(1));
}

TEST(BootstrapStranger, ConfirmationBeforeTheReplyFailsTheSession) {
  BootstrapWorld world;
  TcpEnd caller(world.port());
  const auto handshake = begin(world, caller, world.contents.secret);
  caller.send(bytes_of(handshake.seal(FrameType::kOffer, {})));
  caller.send(bytes_of(handshake.seal(FrameType::kConfirm, {})));
  std::unique_ptr<BootstrapSession> session;
  ASSERT_TRUE(eventually([&] { return (session = world.listener->poll(world.now)) != nullptr; }));
  EXPECT_EQ(finish(*session, world.now), State::kFailed);
}

TEST(BootstrapStranger, SilenceEndsAtTheTimeout) {
  for (const Duration timeout : {BootstrapWorld::kTimeout, Duration::from_s(1)}) {
    BootstrapWorld world(test::ipv4_loopback(), timeout);
    TcpEnd silent(world.port());
    expect_good_peer_gets_through(world);  // the silent caller came first, so it is connected too
    world.now = world.now + timeout - Duration::from_ns(1);
    EXPECT_EQ(world.listener->poll(world.now), nullptr);
    EXPECT_EQ(world.listener->strangers(), 0U);
    world.now = world.now + Duration::from_ns(1);
    EXPECT_EQ(world.listener->poll(world.now), nullptr);
    EXPECT_EQ(world.listener->strangers(), 1U);
  }
}

TEST(BootstrapStranger, SlowCallerGetsNoMoreTime) {
  BootstrapWorld world;
  TcpEnd slow(world.port());
  const Frame hello = encode_frame(FrameType::kHello, bootstrap::Nonce{});
  const Instant start = world.now;
  expect_good_peer_gets_through(world);
  for (size_t sent = 0; world.now < start + BootstrapWorld::kTimeout; ++sent) {
    ASSERT_EQ(world.listener->strangers(), 0U);
    ASSERT_LT(sent, hello.size);
    slow.send(bytes_of(hello).subspan(sent, 1));
    if (sent == 5) expect_good_peer_gets_through(world);
    world.now = world.now + Duration::from_ms(500);
    EXPECT_EQ(world.listener->poll(world.now), nullptr);
  }
  EXPECT_EQ(world.listener->strangers(), 1U);
}

TEST(BootstrapStranger, FrameMayArriveInSingleBytes) {
  BootstrapWorld world;
  TcpEnd caller(world.port());
  const Handshake handshake{.key = handshake_key(world.contents.secret, {})};
  const Frame hello = encode_frame(FrameType::kHello, handshake.connector_nonce);
  for (const uint8_t byte : bytes_of(hello)) {
    EXPECT_EQ(world.listener->poll(world.now), nullptr);
    caller.send({&byte, 1});
  }
  EXPECT_TRUE(world.poll_until([&] { return !caller.receive()->empty(); })) << "no challenge";
}

TEST(BootstrapStranger, OldestSilentCallerIsDroppedForAPeer) {
  BootstrapWorld world;
  std::vector<TcpEnd> crowd;
  for (size_t i = 0; i < kMaxCallers; ++i) crowd.emplace_back(world.port());
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(world.listener->poll(world.now), nullptr);

  auto connector = world.connect(pattern(5, 1));
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(connector->poll(world.now), std::nullopt);
    ASSERT_EQ(world.listener->poll(world.now), nullptr)
        << "no place is free before the grace period ends";
  }
  EXPECT_EQ(world.listener->strangers(), 0U);

  world.now = world.now + kGrace;
  EXPECT_NE(world.accept(*connector), nullptr);
  EXPECT_EQ(world.listener->strangers(), 1U);
  EXPECT_TRUE(eventually([&] { return is_closed(crowd.front()); }))
      << "the oldest caller is dropped first";
  EXPECT_FALSE(is_closed(crowd[1]));
}

TEST(BootstrapStranger, ProvedPeersAreNotDropped) {
  BootstrapWorld world;
  std::vector<TcpEnd> peers;
  std::vector<Frame> offers;
  for (size_t i = 0; i < kMaxCallers; ++i) {
    TcpEnd& peer = peers.emplace_back(world.port());
    offers.push_back(begin(world, peer, world.contents.secret).seal(FrameType::kOffer, {}));
  }
  for (size_t i = 0; i < kMaxCallers; ++i) peers[i].send(bytes_of(offers[i]));
  for (auto& peer : peers) ASSERT_TRUE(eventually([&] { return peer.delivered(); }));
  TcpEnd silent(world.port());

  world.now = world.now + kGrace;
  for (size_t i = 0; i < kMaxCallers; ++i) EXPECT_NE(world.listener->poll(world.now), nullptr);
  EXPECT_EQ(world.listener->strangers(), 0U);
}

TEST(BootstrapStranger, OtherVersionReceivesAVersionNotice) {
  BootstrapWorld world;
  TcpEnd caller(world.port());
  Frame hello = encode_frame(FrameType::kHello, bootstrap::Nonce{});
  hello.bytes[4] = 9;
  caller.send(bytes_of(hello));
  EXPECT_TRUE(world.drops(1));
  Payload notice;
  ASSERT_TRUE(eventually([&] {
    if (const auto bytes = caller.receive()) notice = *bytes;
    return !notice.empty();
  }));
  EXPECT_EQ(notice[4], bootstrap::kVersion);
}

// The connector's error when the other end accepts and sends `answer`.
std::string error_after(std::span<const uint8_t> answer) {
  BootstrapWorld world;
  TcpServer impostor;
  auto connector = world.connect_through(impostor.port(), {});
  TcpEnd end;
  if (!eventually([&] { return bool(end = impostor.accept()); })) return "no connection";
  end.send(answer);
  const auto outcome = finish(*connector, world.now);
  return outcome ? "it succeeded" : outcome.error().message;
}

TEST(BootstrapStranger, ConnectorNamesBothVersions) {
  Frame notice = encode_frame(FrameType::kVersionNotice, {});
  notice.bytes[4] = 9;
  EXPECT_THAT(error_after(bytes_of(notice)),
              HasSubstr("speaks bootstrap version 9, this process version 5"));
}

TEST(BootstrapStranger, ConnectorRecognisesAnotherProgram) {
  const std::string_view banner = "SSH-2.0-OpenSSH_9.2\r\n";
  EXPECT_THAT(error_after({reinterpret_cast<const uint8_t*>(banner.data()), banner.size()}),
              HasSubstr("is not the Pacecar listener"));
}

TEST(BootstrapStranger, ConnectorRecognisesAListenerWithoutTheSecret) {
  const Handshake other{};
  EXPECT_THAT(error_after(bytes_of(other.seal(FrameType::kChallenge, bootstrap::Nonce{}))),
              HasSubstr("does not know the handle's secret"));
}

// The listener knows the secret, but replies before it has the offer.
TEST(BootstrapStranger, ConnectorRecognisesAReplyBeforeTheOffer) {
  BootstrapWorld world;
  TcpServer hasty;
  auto connector = world.connect_through(hasty.port(), pattern(20, 1));
  TcpEnd end;
  ASSERT_TRUE(eventually([&] { return bool(end = hasty.accept()); }));
  Payload hello;
  ASSERT_TRUE(eventually([&] {
    EXPECT_EQ(connector->poll(world.now), std::nullopt);
    const auto more = end.receive();
    if (more) hello.insert(hello.end(), more->begin(), more->end());
    return hello.size() == bootstrap::kHeaderBytes + sizeof(bootstrap::Nonce);
  }));
  Handshake handshake{.key = handshake_key(world.contents.secret, {})};
  handshake.connector_nonce =
      *bootstrap::parse_nonce(std::span(hello).subspan(bootstrap::kHeaderBytes));
  end.send(bytes_of(handshake.seal(FrameType::kChallenge, handshake.listener_nonce)));
  const auto reply = bootstrap::encode_reply({bootstrap::ReplyStatus::kAccepted, pattern(30, 2)});
  end.send(bytes_of(handshake.seal(FrameType::kReply, reply)));
  ASSERT_TRUE(eventually([&] { return end.delivered(); }));
  end.reset();  // so that the offer cannot leave
  const auto outcome = finish(*connector, world.now);
  ASSERT_FALSE(outcome);
  EXPECT_THAT(outcome.error().message, HasSubstr("is not the Pacecar listener"));
}

TEST(BootstrapStranger, ConnectorGivesUpOnSilence) {
  BootstrapWorld world;
  TcpServer silent;
  auto connector = world.connect_through(silent.port(), {});
  TcpEnd end;
  ASSERT_TRUE(eventually([&] {
    EXPECT_EQ(connector->poll(world.now), std::nullopt);
    if (!end) end = silent.accept();
    return end && !end.receive()->empty();
  }));
  const Instant last = world.now + BootstrapWorld::kTimeout * bootstrap::kLatePeer;
  EXPECT_EQ(connector->poll(last - Duration::from_ns(1)), std::nullopt);
  const auto outcome = connector->poll(last);
  ASSERT_FALSE(outcome);
  EXPECT_THAT(outcome.error().message, HasSubstr("connected, but silent"));
}

// One handshake through a man in the middle who changes one bit. Neither side may accept a changed
// payload.
struct Tampering {
  bool flipped = false;
  bool connected = false;
  bool accepted = false;  // the listener returned a session
  bool confirmed = false;
};

Tampering tamper(TcpRelay::Way way, size_t at) {
  BootstrapWorld world;
  TcpRelay relay(world.port(), way, at);
  auto connector = world.connect_through(relay.port(), pattern(4, 1));
  Tampering result;
  std::unique_ptr<BootstrapSession> session;
  bool connecting = true;
  const auto step = [&] {
    if (connecting) {
      const auto polled = connector->poll(world.now);
      connecting = polled && !polled->has_value();
      result.connected = polled && polled->has_value() && confirm(*connector, world.now);
      if (!polled) connector.reset();
    }
    relay.step();
    if (!session) {
      session = world.listener->poll(world.now);
      if (session) {
        result.accepted = true;
        EXPECT_EQ(Payload(session->offer().begin(), session->offer().end()), pattern(4, 1));
        session->reply(pattern(4, 2));
      }
    }
    return !connecting && (!session || session->poll(world.now) != State::kWaiting);
  };
  // With a changed length, a side waits for bytes that never arrive, until the timeout.
  for (int i = 0; i < 300; ++i) step();
  world.now = world.now + BootstrapWorld::kTimeout * bootstrap::kLatePeer;
  EXPECT_TRUE(eventually(step));
  result.flipped = relay.flipped();
  result.confirmed = session && session->poll(world.now) == State::kConfirmed;
  return result;
}

constexpr size_t kHelloBytes = 8 + 16;
constexpr size_t kOfferBytes = 8 + 32 + 4;
constexpr size_t kConfirmBytes = 8 + 32;
constexpr size_t kChallengeBytes = 8 + 32 + 16;
constexpr size_t kReplyBytes = 8 + 32 + 1 + 4;

TEST(BootstrapTampering, UntouchedHandshakeSucceeds) {
  const auto result = tamper(TcpRelay::Way::kToServer, TcpRelay::kNever);
  EXPECT_TRUE(result.connected && result.accepted && result.confirmed);
}

TEST(BootstrapTampering, EveryByteToTheListenerIsProtected) {
  for (size_t at = 0; at < kHelloBytes + kOfferBytes + kConfirmBytes; ++at) {
    SCOPED_TRACE(at);
    const auto result = tamper(TcpRelay::Way::kToServer, at);
    EXPECT_TRUE(result.flipped);
    EXPECT_FALSE(result.confirmed);
    EXPECT_EQ(result.accepted, at >= kHelloBytes + kOfferBytes);
  }
}

TEST(BootstrapTampering, EveryByteToTheConnectorIsProtected) {
  for (size_t at = 0; at < kChallengeBytes + kReplyBytes; ++at) {
    SCOPED_TRACE(at);
    const auto result = tamper(TcpRelay::Way::kToClient, at);
    EXPECT_TRUE(result.flipped);
    EXPECT_FALSE(result.connected);
    EXPECT_FALSE(result.confirmed);
  }
}

}  // namespace
}  // namespace pacecar::stranger_test
