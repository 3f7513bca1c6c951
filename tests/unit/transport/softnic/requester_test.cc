// Requester: runs of packets that are made at once, silence, and what its answers show, one call at
// a time.
#include "transport/softnic/extended/requester.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/wire_reencode.h"
#include "transport/base/seq.h"

namespace pacecar::requester_test {
namespace {

constexpr Bytes kMtu = 1024;
constexpr uint64_t kFirst = (uint64_t{1} << 25) - 3;  // the numbers on the wire soon begin again

struct Sending {
  static Requester::Config usual() {
    return {.peer_queue_pair = 0x42,
            .first_psn = kFirst,
            .window_packets = 64,
            .work_requests = 8,
            .mtu = {.payload = kMtu},
            .loss = {.initial_timeout = Duration::from_ms(8),
                     .min_probe = Duration::from_us(200),
                     .min_timeout = Duration::from_ms(2),
                     .max_timeout = Duration::from_ms(20)},
            .silence_limit = Duration::from_s(1)};
  }
  explicit Sending(const Requester::Config& config = usual()) : requester(config) {}

  void post(size_t packets, Opcode opcode = Opcode::kWrite) {
    const WorkRequest write{.local = bytes.data(), .length = packets * kMtu, .opcode = opcode};
    ASSERT_EQ(requester.post({&write, 1}), 1U);
  }
  std::vector<Requester::Outgoing> send() {
    std::vector<Requester::Outgoing> sent;
    Requester::Outgoing next;
    while (requester.next_packet(now, &next)) sent.push_back(next);
    return sent;
  }
  // Everything before `place` has arrived; the answer is to the packet before it, sent at `sent`.
  SendProgress acknowledge(uint32_t place, std::optional<Instant> sent = std::nullopt) {
    wire::AckHeader ack{.cumulative = static_cast<uint32_t>((kFirst + place) & kPsnMask)};
    if (sent) {
      ack.echo_valid = true;
      ack.echo_psn = static_cast<uint32_t>((kFirst + place - 1) & kPsnMask);
      ack.echo_timestamp = static_cast<uint32_t>(sent->ns());
    }
    return requester.on_ack(ack, {}, now, now);
  }
  SendTimeout time_out(SendProgress* progress) {
    now = requester.deadline();
    return requester.on_timeout(now, progress);
  }
  SendTimeout time_out() {
    SendProgress progress;
    return time_out(&progress);
  }
  void pass(Duration time) { now = now + time; }

  Instant now = Instant::from_ns(1'000'000'000);
  std::vector<uint8_t> bytes = std::vector<uint8_t>(128 * kMtu);
  Requester requester;
};

// --- runs ---

// The end of a message, and of the window, has a header of its own.
TEST(SoftNicRequester, ARunLeavesTheLastPacketOfItsMessageOut) {
  Requester::Outgoing first;
  for (const auto& [packets, run] : {std::pair{1, 0U}, {2, 0U}, {3, 2U}, {5, 4U}}) {
    Sending sending;
    sending.post(static_cast<size_t>(packets));
    EXPECT_EQ(sending.requester.next_run(sending.now, 16, &first), run) << packets;
    EXPECT_EQ(sending.send().size(), static_cast<size_t>(packets) - run);
  }
}

TEST(SoftNicRequester, ARunIsNoLongerThanWantedAndLeavesTheWindowsLastPacketOut) {
  Sending sending;
  sending.post(100);
  Requester::Outgoing first;
  EXPECT_EQ(sending.requester.next_run(sending.now, 1, &first), 0U) << "one packet is none";
  EXPECT_EQ(sending.requester.next_run(sending.now, 3, &first), 3U);
  EXPECT_EQ(first.header.psn, (kFirst & kPsnMask));
  EXPECT_EQ(first.payload.size(), kMtu);
  EXPECT_FALSE(first.retransmission);
  EXPECT_EQ(sending.requester.next_run(sending.now, 100, &first), 60U);
  EXPECT_EQ(first.header.psn, ((kFirst + 3) & kPsnMask));
  EXPECT_EQ(sending.requester.in_flight(), 63 * kMtu);
  EXPECT_EQ(sending.requester.next_run(sending.now, 100, &first), 0U);
  EXPECT_EQ(sending.send().size(), 1U);
  EXPECT_TRUE(sending.requester.full());
}

TEST(SoftNicRequester, SilenceCountsFromARun) {
  Sending sending;
  sending.pass(Duration::from_s(100));  // in which nothing was sent
  sending.post(10);
  Requester::Outgoing first;
  ASSERT_EQ(sending.requester.next_run(sending.now, 4, &first), 4U);
  EXPECT_EQ(sending.requester.deadline(), sending.now + Duration::from_ms(8));
  for (int i = 0; i < 9; ++i) EXPECT_EQ(sending.time_out(), SendTimeout::kRepair) << i;
}

// --- silence ---

TEST(SoftNicRequester, NothingIsDueWhenNothingIsInFlight) {
  Sending sending;
  SendProgress progress;
  EXPECT_EQ(sending.requester.deadline(), Instant::never());
  sending.pass(Duration::from_s(100));
  EXPECT_EQ(sending.requester.on_timeout(sending.now, &progress), SendTimeout::kNotYet);
  sending.post(1);
  sending.send();
  sending.acknowledge(1);
  sending.pass(Duration::from_s(100));
  EXPECT_EQ(sending.requester.on_timeout(sending.now, &progress), SendTimeout::kNotYet);
  EXPECT_FALSE(sending.requester.has_work());
}

TEST(SoftNicRequester, AProbeAsksWithoutData) {
  Sending sending;
  sending.post(3);
  sending.send();
  sending.acknowledge(1);
  sending.now = sending.requester.deadline() - Duration::from_ns(1);
  SendProgress progress;
  EXPECT_EQ(sending.requester.on_timeout(sending.now, &progress), SendTimeout::kNotYet);
  EXPECT_EQ(sending.time_out(&progress), SendTimeout::kRepair);
  EXPECT_TRUE(sending.requester.probing());
  EXPECT_EQ(sending.requester.next_bytes(), 0U);
  EXPECT_FALSE(progress.timed_out);
  const auto sent = sending.send();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_TRUE(sent[0].header.taken_back);
  EXPECT_TRUE(sent[0].header.ack_request);
  EXPECT_TRUE(sent[0].payload.empty());
  EXPECT_EQ(sent[0].header.psn, kFirst & kPsnMask) << "which the peer has";
  EXPECT_EQ(sending.time_out(&progress), SendTimeout::kRepair);
  EXPECT_TRUE(progress.timed_out);
}

TEST(SoftNicRequester, ProbesComeMoreAndMoreRarelyUntilOneIsAnswered) {
  Sending sending;
  sending.post(2);
  sending.send();
  std::vector<int64_t> waits;
  for (int i = 0; i < 5; ++i) {
    sending.time_out();
    waits.push_back((sending.requester.deadline() - sending.now).ns() / 1'000'000);
    sending.send();
  }
  EXPECT_THAT(waits, testing::ElementsAre(8, 16, 20, 20, 20));
  sending.acknowledge(1);
  EXPECT_EQ(sending.requester.deadline(), sending.now + Duration::from_ms(8));
  sending.time_out();
  EXPECT_EQ(sending.requester.deadline(), sending.now + Duration::from_ms(8));
}

TEST(SoftNicRequester, AnAnswerMakesAProbeThatHasNotLeftNeedless) {
  Sending sending;
  sending.post(2);
  sending.send();
  sending.time_out();
  sending.acknowledge(1);
  EXPECT_FALSE(sending.requester.probing());
  EXPECT_TRUE(sending.send().empty());
}

// Silent for the limit, and asked in vain six times: both.
TEST(SoftNicRequester, APeerIsDeadAfterItsLimitAndSixProbes) {
  // After 8, 16, 32, 52, 72, 92, 112, 132 ms.
  for (const auto& [limit_ms, probes] : {std::pair{60, 6}, {112, 6}, {113, 7}}) {
    SCOPED_TRACE(limit_ms);
    Requester::Config config = Sending::usual();
    config.silence_limit = Duration::from_ms(limit_ms);
    Sending sending(config);
    sending.pass(Duration::from_s(50));  // in which nothing was sent
    sending.post(1);
    sending.send();
    for (int i = 0; i < probes; ++i) {
      ASSERT_EQ(sending.time_out(), SendTimeout::kRepair) << i;
      ASSERT_EQ(sending.send().size(), 1U);
    }
    EXPECT_EQ(sending.time_out(), SendTimeout::kPeerDead);
  }
}

TEST(SoftNicRequester, AnAnswerBeginsSilenceAnew) {
  Requester::Config config = Sending::usual();
  config.silence_limit = Duration::from_ms(60);
  Sending sending(config);
  sending.post(2);
  sending.send();
  for (int i = 0; i < 6; ++i) sending.time_out();
  sending.acknowledge(1);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(sending.time_out(), SendTimeout::kRepair) << i;
  EXPECT_EQ(sending.time_out(), SendTimeout::kPeerDead);
}

// The answers to probes show that the peer lives, but not that anything reaches it.
TEST(SoftNicRequester, APeerWhomNoPacketOfAnySizeReachesIsSilent) {
  for (const bool smallest_passes : {false, true}) {
    Requester::Config config = Sending::usual();
    config.mtu = {.payload = kMtu, .overhead = 60, .searches = true};
    Sending sending(config);
    sending.post(1);
    sending.send();
    SendTimeout timeout = SendTimeout::kRepair;
    while (timeout != SendTimeout::kPeerDead && sending.requester.deadline() != Instant::never()) {
      timeout = sending.time_out();
      sending.requester.ask(sending.now);
      if (smallest_passes) sending.requester.on_answer(576, false, sending.now);
      sending.acknowledge(smallest_passes ? 1 : 0);
    }
    EXPECT_EQ(timeout == SendTimeout::kPeerDead, !smallest_passes);
  }
}

// The kernel may refuse every packet with data, and send the probes.
TEST(SoftNicRequester, APeerWhomProbesReachButNoDataIsDeadAfterTheLimit) {
  Requester::Config config = Sending::usual();
  config.silence_limit = Duration::from_s(1);
  Sending sending(config);
  sending.post(2);
  sending.send();
  sending.acknowledge(1);
  const Instant last_arrival = sending.now;
  SendTimeout timeout = SendTimeout::kRepair;
  while (timeout != SendTimeout::kPeerDead && sending.now < last_arrival + Duration::from_s(60)) {
    timeout = sending.time_out();
    sending.send();
    sending.acknowledge(1);
  }
  EXPECT_EQ(timeout, SendTimeout::kPeerDead);
  EXPECT_GE(sending.now - last_arrival, Duration::from_s(1));
  EXPECT_LT(sending.now - last_arrival, Duration::from_ms(1100));
}

TEST(SoftNicRequester, OurOwnStopIsNoSilence) {
  Requester::Config config = Sending::usual();
  config.silence_limit = Duration::from_ms(200);
  Sending sending(config);
  sending.post(1);
  sending.send();
  for (int i = 0; i < 6; ++i) sending.time_out();
  sending.now = sending.requester.deadline() + Duration::from_s(1);
  SendProgress progress;
  EXPECT_EQ(sending.requester.on_timeout(sending.now, &progress), SendTimeout::kRepair);
}

TEST(SoftNicRequester, PacketsWithTheirOwnTimeoutsAreLostOneByOne) {
  Requester::Config config = Sending::usual();
  config.loss.packet_timeout = Duration::from_us(100);
  config.silence_limit = Duration::from_us(250);
  Sending sending(config);
  sending.post(1);
  sending.send();
  const Instant begin = sending.now;
  sending.pass(Duration::from_us(60));
  sending.post(2);
  sending.send();
  EXPECT_EQ(sending.requester.deadline(), begin + Duration::from_us(100));
  SendProgress progress;
  EXPECT_EQ(sending.time_out(&progress), SendTimeout::kRepair);
  EXPECT_EQ(progress.lost, kMtu) << "the first";
  EXPECT_FALSE(sending.requester.probing());
  EXPECT_EQ(sending.requester.deadline(), begin + Duration::from_us(160));
  EXPECT_EQ(sending.send().size(), 1U);
  progress = {};
  EXPECT_EQ(sending.time_out(&progress), SendTimeout::kRepair);
  EXPECT_EQ(progress.lost, 2 * kMtu);
  sending.send();
  sending.time_out();
  sending.send();
  EXPECT_EQ(sending.time_out(), SendTimeout::kPeerDead) << "silent for 260 us";
}

// The sender soon asks for an overtaken packet, unless later packets are still under way.
TEST(SoftNicRequester, WhileOthersAreUnderWayNothingIsAskedBeforeSilence) {
  Sending sending;
  const Instant begin = sending.now;
  for (const int64_t at_us : {0, 3, 40}) {
    sending.now = begin + Duration::from_us(at_us);
    sending.post(1);
    ASSERT_EQ(sending.send().size(), 1U);
  }
  sending.now = begin + Duration::from_us(100);
  const std::array<uint64_t, 1> second{2};
  const wire::AckHeader ack{
      .cumulative = static_cast<uint32_t>(kFirst & kPsnMask),
      .echo_timestamp = static_cast<uint32_t>((begin + Duration::from_us(3)).ns()),
      .echo_psn = static_cast<uint32_t>((kFirst + 1) & kPsnMask),
      .echo_valid = true};
  const auto bytes = wire::encode_ack(ack, second);
  wire::AckHeader decoded;
  wire::Bitmap bitmap;
  wire::TelemetryView telemetry;
  ASSERT_TRUE(wire::decode(wire::body(bytes), decoded, bitmap, telemetry));
  EXPECT_EQ(sending.requester.on_ack(decoded, bitmap, sending.now, sending.now).acked, kMtu);
  const Instant heard = sending.now;
  EXPECT_LT(sending.requester.deadline(), heard + Duration::from_us(30));
  EXPECT_EQ(sending.time_out(), SendTimeout::kNotYet);
  EXPECT_GT(sending.requester.deadline(), heard + Duration::from_us(190)) << "two round trips";
  EXPECT_EQ(sending.time_out(), SendTimeout::kRepair);
}

// --- answers ---

TEST(SoftNicRequester, AnswersTellTheRoundTripWithoutTheTimeInThePeer) {
  Sending sending;
  sending.post(2);
  sending.send();
  const Instant sent = sending.now;
  sending.pass(Duration::from_us(100));
  wire::AckHeader ack{.cumulative = static_cast<uint32_t>((kFirst + 1) & kPsnMask),
                      .echo_timestamp = static_cast<uint32_t>(sent.ns()),
                      .hold_ns = 30'000,
                      .echo_psn = static_cast<uint32_t>(kFirst & kPsnMask),
                      .echo_valid = true};
  const Instant arrival = sending.now - Duration::from_us(10);
  EXPECT_EQ(sending.requester.on_ack(ack, {}, arrival, sending.now).rtt, Duration::from_us(60));
  EXPECT_EQ(sending.requester.round_trip(), Duration::from_us(100)) << "with all of it";
  ack.hold_ns = 90'000;
  EXPECT_EQ(sending.requester.on_ack(ack, {}, arrival, sending.now).rtt, Duration())
      << "held for as long as it took: the peer's clock is wrong";
}

TEST(SoftNicRequester, WhatWasNeverSentIsNotAcknowledged) {
  Sending sending;
  sending.post(2);
  sending.send();
  EXPECT_EQ(sending.acknowledge(3).acked, 0U);
  EXPECT_EQ(sending.acknowledge(2).acked, 2 * kMtu);
  EXPECT_EQ(sending.acknowledge(2).acked, 0U);
}

TEST(SoftNicRequester, MarksCountAsManyPacketsAsTheAnswerSaysButNoMoreThanArrived) {
  Sending sending;
  sending.post(6);
  sending.send();
  wire::AckHeader ack{.marked = 2};
  const auto answer = [&](uint32_t place, uint32_t marked) {
    ack.cumulative = static_cast<uint32_t>((kFirst + place) & kPsnMask);
    ack.marked = marked;
    return sending.requester.on_ack(ack, {}, sending.now, sending.now).marked;
  };
  EXPECT_EQ(answer(3, 2), 2 * kMtu);
  EXPECT_EQ(answer(4, 2), 0U) << "no further ones";
  EXPECT_EQ(answer(5, 1), 0U) << "an older answer";
  EXPECT_EQ(answer(6, 9), kMtu);
}

}  // namespace
}  // namespace pacecar::requester_test
