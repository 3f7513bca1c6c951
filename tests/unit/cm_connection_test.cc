// Ends of connections that talk over a network which loses and repeats.
#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "net_plugin/verbs/cm/core/connection.h"

namespace pacecar::ibverbs::cm {
namespace {

using State = Connection::State;
constexpr Duration kLimit = Duration::from_s(10);

// Two ends, and what is on its way to each.
struct Pair {
  explicit Pair(uint32_t seed, uint32_t loss_percent) : random(seed), loss(loss_percent) {}

  void send(int to, const Message* message) {
    if (message == nullptr || random() % 100 < loss) return;
    const size_t copies = random() % 100 < loss ? 2 : 1;
    const auto mad = encode(*message);
    for (size_t i = 0; i < copies; ++i) underway[to].push_back(*decode(mad));
  }
  void take(int who, const Connection::Step& step) {
    send(1 - who, step.send);
    if (step.notice != Notice::kNothing) told[who].push_back(step.notice);
  }
  void deliver(int to) {
    const Message message = underway[to].front();
    underway[to].pop_front();
    if (to == 1 && ends[1].state() == State::kIdle) {
      if (message.kind != Kind::kRequest) return;
      ends[1].on_request(message);
      if (refuses) return send(0, ends[1].reject({.reason = kRejectedByConsumer}));
      return send(0, ends[1].reply({.queue_pair = 2}, now));
    }
    take(to, ends[to].on_message(message, now));
    if (to == 0 && ends[0].state() == State::kReplied) send(1, ends[0].ready({}));
  }
  void run(Duration time) {
    for (const Instant end = now + time; now < end; now = now + Duration::from_ms(10)) {
      for (int who = 0; who < 2; ++who) {
        while (!underway[who].empty()) deliver(who);
        take(who, ends[who].on_time(now));
      }
    }
  }

  std::mt19937 random;
  uint32_t loss;
  bool refuses = false;
  Instant now = Instant() + Duration::from_s(1);
  Connection ends[2] = {Connection(11, kLimit), Connection(22, kLimit)};
  std::deque<Message> underway[2];
  std::vector<Notice> told[2];
};

TEST(CmConnection, ComesUpAndEndsWhateverIsLost) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    Pair pair(seed, seed % 4 * 10);
    pair.send(1, pair.ends[0].request({.queue_pair = 1}, pair.now));
    pair.run(kLimit);
    ASSERT_EQ(pair.ends[0].state(), State::kEstablished) << seed;
    ASSERT_EQ(pair.ends[1].state(), State::kEstablished) << seed;
    EXPECT_EQ(pair.ends[0].remote_id(), 22U);
    const int first = static_cast<int>(seed % 2);
    pair.send(1 - first, pair.ends[first].disconnect(1, 99, pair.now));
    pair.run(Duration::from_s(5));
    EXPECT_EQ(pair.ends[first].state(), State::kClosed) << seed;
    EXPECT_EQ(pair.told[first].back(), Notice::kDisconnected);
    // Told once.
    EXPECT_EQ(std::count(pair.told[first].begin(), pair.told[first].end(), Notice::kDisconnected),
              1);
  }
}

TEST(CmConnection, ARefusalIsHeardWhateverIsLost) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    Pair pair(seed, 30);
    pair.refuses = true;
    pair.send(1, pair.ends[0].request({}, pair.now));
    pair.run(kLimit * 2);
    ASSERT_EQ(pair.told[0], std::vector{Notice::kRejected}) << seed;
  }
}

TEST(CmConnection, NobodyAnswers) {
  Pair pair(1, 100);
  pair.ends[0].request({}, pair.now);
  pair.run(kLimit - Duration::from_ms(20));
  EXPECT_TRUE(pair.told[0].empty());
  pair.run(Duration::from_ms(100));
  EXPECT_EQ(pair.told[0], std::vector{Notice::kUnreachable});
  EXPECT_EQ(pair.ends[0].due(), Instant::never());
}

TEST(CmConnection, WhoHasTheRequestMayAskForTime) {
  Pair pair(1, 0);
  pair.ends[0].request({}, pair.now);
  pair.take(0, pair.ends[0].on_message({.kind = Kind::kReceipt, .wait = 22}, pair.now));  // 17 s
  pair.run(kLimit + Duration::from_s(1));
  EXPECT_TRUE(pair.told[0].empty());
  pair.take(0, pair.ends[0].on_message({.kind = Kind::kReply, .local_id = 5}, pair.now));
  EXPECT_EQ(pair.told[0], std::vector{Notice::kReply});
}

TEST(CmConnection, AQuestionIsAnsweredAgain) {
  Connection asks(11, kLimit);
  Connection answers(22, kLimit);
  const Instant now = Instant() + Duration::from_s(1);
  const Message question = *asks.find({.service = 5}, now);
  EXPECT_EQ(question.kind, Kind::kFind);
  answers.on_request(question);
  const Message found = *answers.found({.queue_key = 7, .queue_pair = 9});
  EXPECT_EQ(found.local_id, 11U);
  const auto again = answers.on_message(question, now);
  ASSERT_NE(again.send, nullptr);
  EXPECT_EQ(encode(*again.send), encode(found));
  EXPECT_EQ(asks.on_message(found, now).notice, Notice::kReply);
  EXPECT_EQ(asks.on_message(found, now).notice, Notice::kNothing);
}

}  // namespace
}  // namespace pacecar::ibverbs::cm
