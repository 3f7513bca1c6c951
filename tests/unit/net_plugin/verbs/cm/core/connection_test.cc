// Ends of connections over a network that loses and duplicates messages.
#include "net_plugin/verbs/cm/core/connection.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace pacecar::ibverbs::cm::connection_test {
namespace {

using State = Connection::State;
constexpr Duration kLimit = Duration::from_s(10);

// Two ends, and the messages in flight to each.
struct Pair {
  explicit Pair(uint32_t seed, uint32_t loss_percent) : random(seed), loss(loss_percent) {}

  void send(int to, const Message* message) {
    if (message == nullptr || random() % 100 < loss) return;
    const size_t copies = random() % 100 < loss ? 2 : 1;
    const auto mad = encode(*message);
    for (size_t i = 0; i < copies; ++i) in_flight[to].push_back(*decode(mad));
  }
  void take(int who, const Connection::Step& step) {
    send(1 - who, step.send);
    if (step.notice != Notice::kNothing) notices[who].push_back(step.notice);
  }
  void deliver(int to) {
    const Message message = in_flight[to].front();
    in_flight[to].pop_front();
    if (killed == to || (ignores_requests && to == 1 && message.service == 0 && up())) return;
    if (to == 1 && ends[1].state() == State::kIdle) {
      if (message.kind != Kind::kRequest) return;
      ends[1].on_request(message);
      if (refuses)
        return send(0, ends[1].answer({.kind = Kind::kReject, .reason = kRejectedByConsumer}, now));
      return send(0, ends[1].answer({.kind = Kind::kReply, .queue_pair = 2}, now));
    }
    take(to, ends[to].on_message(message, now));
    if (to == 0 && ends[0].state() == State::kReplied) send(1, ends[0].ready(now));
  }
  void come_up() {
    send(1, ends[0].ask({.service = 5, .queue_pair = 1}, now));
    run(Duration::from_s(1));
    ASSERT_TRUE(up());
  }
  bool up() const {
    return ends[0].state() == State::kEstablished && ends[1].state() == State::kEstablished;
  }
  void run(Duration time) {
    for (const Instant end = now + time; now < end; now = now + Duration::from_ms(10)) {
      for (int who = 0; who < 2; ++who) {
        while (!in_flight[who].empty()) deliver(who);
        if (who != killed) take(who, ends[who].on_time(now));
      }
    }
  }

  std::mt19937 random;
  uint32_t loss;
  bool refuses = false;
  int killed = -1;
  bool ignores_requests = false;  // end 1, once established, as Linux does
  Instant now = Instant() + Duration::from_s(1);
  Connection ends[2] = {Connection(11, kLimit), Connection(22, kLimit)};
  std::deque<Message> in_flight[2];
  std::vector<Notice> notices[2];
};

TEST(CmConnection, ConnectionOpensAndClosesDespiteLosses) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    Pair pair(seed, seed % 4 * 10);
    pair.send(1, pair.ends[0].ask({.queue_pair = 1}, pair.now));
    pair.run(kLimit);
    ASSERT_EQ(pair.ends[0].state(), State::kEstablished) << seed;
    ASSERT_EQ(pair.ends[1].state(), State::kEstablished) << seed;
    EXPECT_EQ(pair.ends[0].remote_id(), 22U);
    const int first = static_cast<int>(seed % 2);
    pair.send(1 - first, pair.ends[first].disconnect(99, pair.now));
    pair.run(Duration::from_s(5));
    EXPECT_EQ(pair.ends[first].state(), State::kClosed) << seed;
    EXPECT_EQ(pair.notices[first].back(), Notice::kDisconnected);
    // The application gets this notice once.
    EXPECT_EQ(
        std::count(pair.notices[first].begin(), pair.notices[first].end(), Notice::kDisconnected),
        1);
  }
}

TEST(CmConnection, RejectArrivesDespiteLosses) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    Pair pair(seed, 30);
    pair.refuses = true;
    pair.send(1, pair.ends[0].ask({}, pair.now));
    pair.run(kLimit * 2);
    ASSERT_EQ(pair.notices[0], std::vector{Notice::kRejected}) << seed;
  }
}

TEST(CmConnection, UnansweredRequestEndsAsUnreachable) {
  Pair pair(1, 100);
  pair.ends[0].ask({}, pair.now);
  pair.run(kLimit - Duration::from_ms(20));
  EXPECT_TRUE(pair.notices[0].empty());
  pair.run(Duration::from_ms(100));
  EXPECT_EQ(pair.notices[0], std::vector{Notice::kUnreachable});
  EXPECT_EQ(pair.ends[0].due(), Instant::never());
}

TEST(CmConnection, UnconfirmedReplyEndsAsUnreachable) {
  Pair pair(1, 0);
  pair.killed = 0;
  pair.ends[1].on_request(*pair.ends[0].ask({}, pair.now));
  pair.ends[1].answer({.kind = Kind::kReply}, pair.now);
  pair.run(kLimit + Duration::from_ms(100));
  EXPECT_EQ(pair.notices[1], std::vector{Notice::kUnreachable});
}

TEST(CmConnection, ReceiptExtendsTheTimeLimit) {
  Pair pair(1, 0);
  pair.ends[0].ask({}, pair.now);
  pair.take(0, pair.ends[0].on_message({.kind = Kind::kReceipt, .wait = 22}, pair.now));  // 17 s
  pair.run(kLimit + Duration::from_s(1));
  EXPECT_TRUE(pair.notices[0].empty());
  pair.take(0, pair.ends[0].on_message({.kind = Kind::kReply, .local_id = 5}, pair.now));
  EXPECT_EQ(pair.notices[0], std::vector{Notice::kReply});
}

// Its program has not answered yet. A process that has the service says so to who searches it.
TEST(CmConnection, RepeatedRequestIsReceipted) {
  Pair pair(1, 0);
  const Message request = *pair.ends[0].ask({.service = 5}, pair.now);
  pair.ends[1].on_request(request);
  const auto step = pair.ends[1].on_message(request, pair.now);
  ASSERT_NE(step.send, nullptr);
  EXPECT_EQ(step.send->kind, Kind::kReceipt);
  const Instant due = pair.ends[0].due();
  pair.ends[0].on_message(*step.send, pair.now);
  EXPECT_EQ(pair.ends[0].due(), due);
  pair.run(kLimit + Duration::from_s(1));
  EXPECT_EQ(pair.notices[0], std::vector{Notice::kUnreachable}) << "the limit stays";
}

TEST(CmConnection, IdleConnectionsStayUpDespiteLosses) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Pair pair(seed, seed % 3 * 10);
    pair.come_up();
    pair.run(Duration::from_s(600));
    ASSERT_TRUE(pair.up()) << seed;
  }
}

TEST(CmConnection, EitherEndDetectsAKilledPeer) {
  for (const int killed : {0, 1}) {
    Pair pair(1, 0);
    pair.come_up();
    pair.killed = killed;
    pair.run(Duration::from_s(25));
    EXPECT_EQ(pair.ends[1 - killed].state(), State::kEstablished)
        << "the peer may be stopped, or packets lost";
    pair.run(Duration::from_s(15));
    ASSERT_FALSE(pair.notices[1 - killed].empty());
    EXPECT_EQ(pair.notices[1 - killed].back(), Notice::kSilent);
    EXPECT_EQ(pair.ends[1 - killed].due(), Instant::never());
  }
}

// The silence of a peer that never answers probes does not show that it is dead.
TEST(CmConnection, PeerThatIgnoresProbesIsNotDisconnected) {
  Pair pair(1, 0);
  pair.ignores_requests = true;
  pair.come_up();
  pair.killed = 1;
  pair.run(Duration::from_s(200));
  EXPECT_EQ(pair.ends[0].state(), State::kEstablished);
  EXPECT_EQ(pair.ends[0].due(), Instant::never());
}

// While this process is stopped, it cannot take the answers of its peer.
TEST(CmConnection, OwnStopDoesNotCountAsThePeersSilence) {
  Pair pair(1, 0);
  pair.come_up();
  pair.run(Duration::from_s(12));
  pair.now = pair.now + Duration::from_s(1000);
  pair.run(Duration::from_s(100));
  EXPECT_TRUE(pair.up());
}

// The peer was killed, and the process that replaced it rejects the probe.
TEST(CmConnection, RejectedProbeClosesTheConnection) {
  Pair pair(1, 0);
  pair.come_up();
  pair.take(0,
            pair.ends[0].on_message({.kind = Kind::kReject, .reason = kInvalidService}, pair.now));
  EXPECT_EQ(pair.notices[0].back(), Notice::kDisconnected);
}

TEST(CmConnection, DisconnectCarriesThePeersQueuePair) {
  Pair pair(1, 0);
  pair.come_up();
  EXPECT_EQ(pair.ends[0].disconnect(99, pair.now)->queue_pair, 2U);
  EXPECT_EQ(pair.ends[1].disconnect(99, pair.now)->queue_pair, 1U);
}

TEST(CmConnection, RepeatedQuestionIsAnsweredAgain) {
  Connection asks(11, kLimit);
  Connection answers(22, kLimit);
  const Instant now = Instant() + Duration::from_s(1);
  const Message question = *asks.ask({.kind = Kind::kFind, .service = 5}, now);
  EXPECT_EQ(question.kind, Kind::kFind);
  answers.on_request(question);
  const Message found =
      *answers.answer({.kind = Kind::kFound, .queue_key = 7, .queue_pair = 9}, now);
  EXPECT_EQ(found.local_id, 11U);
  const auto again = answers.on_message(question, now);
  ASSERT_NE(again.send, nullptr);
  EXPECT_EQ(encode(*again.send), encode(found));
  EXPECT_EQ(asks.on_message(found, now).notice, Notice::kReply);
  EXPECT_EQ(asks.on_message(found, now).notice, Notice::kNothing);
}

}  // namespace
}  // namespace pacecar::ibverbs::cm::connection_test
