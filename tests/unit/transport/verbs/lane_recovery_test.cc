// Recovery of a lane by its two ends: their messages, the order of events, the accounts of
// requests.
#include "transport/nic/lanes/lane_recovery.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <vector>

#include "transport/base/prng.h"
#include "transport/verbs/lane.h"

namespace pacecar::lane_recovery_test {
namespace {

using Kind = RecoveryMessage::Kind;
using State = LaneRecovery::State;
using Step = LaneRecovery::Step;

TEST(RecoveryMessage, DecodesToTheEncodedMessage) {
  const RecoveryMessage offer{.kind = Kind::kOffer,
                              .lane = 3,
                              .generation = 0x01020304,
                              .end = {.queue_pair = 0xFFFFFF, .first_psn = 0xABCDEF},
                              .received = uint64_t{1} << 40};
  EXPECT_EQ(decode_recovery_message(encode(offer)), offer);
  const RecoveryMessage ready{.kind = Kind::kReady, .lane = 7, .generation = 9};
  EXPECT_EQ(decode_recovery_message(encode(ready)), ready);
}

TEST(RecoveryMessage, InvalidMessageIsRefused) {
  const auto good = encode({.kind = Kind::kOffer, .end = {.queue_pair = 17}});
  ASSERT_TRUE(decode_recovery_message(good));
  EXPECT_FALSE(decode_recovery_message(std::span(good).first(good.size() - 1)));
  EXPECT_FALSE(decode_recovery_message({}));
  for (const auto& [at, value] : {std::pair<size_t, uint8_t>{0, 0},  // no kind
                                  {0, 2},                            // ready, but with an end
                                  {0, 3},
                                  {2, 1},      // a reserved byte that is not zero
                                  {8, 1},      // a queue pair of more than 24 bits
                                  {11, 1},     // a queue pair of management
                                  {12, 1}}) {  // a PSN of more than 24 bits
    auto bad = good;
    bad[at] = value;
    EXPECT_FALSE(decode_recovery_message(bad)) << at;
  }
}

TEST(Standby, AnnouncementIsReadOnlyWithItsMark) {
  RcEndpoint endpoint;
  EXPECT_FALSE(announced_standby(endpoint));
  announce_standby({.queue_pair = 5, .first_psn = 6}, endpoint);
  EXPECT_EQ(announced_standby(endpoint), (RcLane{.queue_pair = 5, .first_psn = 6}));
  endpoint.extension[0] ^= 1;
  EXPECT_FALSE(announced_standby(endpoint));
}

TEST(Standby, AnnouncementFollowsOtherExtensions) {
  RcEndpoint endpoint;
  endpoint.extension_bytes = 32;
  endpoint.extension.fill(0xEE);
  announce_standby({.queue_pair = 5, .first_psn = 6}, endpoint);
  EXPECT_EQ(endpoint.extension_bytes, 32 + kStandbyBytes);
  EXPECT_EQ(announced_standby(endpoint), (RcLane{.queue_pair = 5, .first_psn = 6}));
  --endpoint.extension_bytes;
  EXPECT_FALSE(announced_standby(endpoint));
}

// Two ends, joined by a slow channel that keeps order.
class LaneRecoveries : public testing::Test {
 protected:
  struct End {
    LaneRecovery recovery;
    std::deque<RecoveryMessage> arriving;
    uint32_t connections = 1;
    uint32_t joins = 0;
    bool stopped = false;
  };

  void fail(size_t side) {
    LaneRecovery& recovery = ends_[side].recovery;
    if (recovery.up()) recovery.on_failed(Instant());
    if (recovery.may_fail_again()) recovery.on_failed_again();
  }
  // A side takes one message that has arrived.
  void take_message(size_t side) {
    End& end = ends_[side];
    if (end.arriving.empty()) return;
    ASSERT_TRUE(end.recovery.on_message(end.arriving.front()));
    end.arriving.pop_front();
    if (end.recovery.up() && end.recovery.offered()) fail(side);
  }
  void step(size_t side, bool path_ready = true) {
    End& end = ends_[side];
    RecoveryMessage message{.generation = end.recovery.generation()};
    switch (end.recovery.next(path_ready)) {
      case Step::kReplace: ++end.connections; return end.recovery.on_replaced();
      case Step::kSendReady: message.kind = Kind::kReady; [[fallthrough]];
      case Step::kSendOffer:
        if (message.kind == Kind::kOffer) message.end.queue_pair = end.connections;
        ends_[1 - side].arriving.push_back(message);
        return end.recovery.on_sent();
      case Step::kJoin:
        EXPECT_EQ(end.recovery.offer().end.queue_pair, end.connections)
            << "the offer is of the current connection";
        ++end.joins;
        return end.recovery.on_joined();
      case Step::kUse:
        EXPECT_GE(ends_[1 - side].joins, end.joins) << "the peer has not joined";
        if (end.recovery.on_used()) fail(side);
        return;
      case Step::kWait: return;
    }
  }
  void settle() {
    for (int i = 0; i < 40; ++i) {
      for (size_t side = 0; side < 2; ++side) {
        take_message(side);
        step(side);
      }
    }
  }
  void expect_both_up(uint32_t generation) {
    for (const End& end : ends_) {
      EXPECT_TRUE(end.recovery.up());
      EXPECT_EQ(end.recovery.generation(), generation);
      EXPECT_EQ(end.joins, generation);
      EXPECT_TRUE(end.arriving.empty());
    }
  }

  std::array<End, 2> ends_;
};

TEST_F(LaneRecoveries, RecoveryBegunByOneEndCompletes) {
  fail(0);
  settle();
  expect_both_up(1);
}

TEST_F(LaneRecoveries, OffersOfBothEndsAnswerEachOther) {
  fail(0);
  fail(1);
  settle();
  expect_both_up(1);
}

TEST_F(LaneRecoveries, RecoveryBeginsWithAPathOrAnOfferOfThePeer) {
  fail(0);
  step(0, false);
  EXPECT_EQ(ends_[0].recovery.state(), State::kFailed);
  ASSERT_TRUE(ends_[0].recovery.on_message({.kind = Kind::kOffer, .end = {.queue_pair = 2}}));
  step(0, false);
  EXPECT_EQ(ends_[0].recovery.state(), State::kReplaced);
}

TEST_F(LaneRecoveries, BothEndsComeUpAfterAnyOrderOfEvents) {
  Prng random(1);
  uint32_t failures = 0;
  for (int i = 0; i < 20'000; ++i) {
    const auto side = static_cast<size_t>(random.below(2));
    switch (random.below(8)) {
      case 0:
        failures += ends_[side].recovery.up() || ends_[side].recovery.may_fail_again() ? 1 : 0;
        fail(side);
        break;
      case 1:
      case 2:
      case 3: take_message(side); break;
      default: step(side);
    }
    if (HasFailure()) return;
  }
  settle();
  expect_both_up(ends_[0].recovery.generation());
  EXPECT_GT(ends_[0].recovery.generation(), 100U);
  EXPECT_GE(failures, ends_[0].recovery.generation());
}

TEST_F(LaneRecoveries, UnexpectedMessageIsRefused) {
  LaneRecovery& recovery = ends_[0].recovery;
  const RecoveryMessage offer{.kind = Kind::kOffer, .end = {.queue_pair = 2}};
  EXPECT_FALSE(recovery.on_message({.kind = Kind::kReady})) << "no recovery has begun";
  EXPECT_FALSE(recovery.on_message({.kind = Kind::kOffer, .generation = 1}))
      << "a later generation";
  EXPECT_TRUE(recovery.on_message(offer));
  EXPECT_FALSE(recovery.on_message(offer)) << "the same offer again";
  EXPECT_FALSE(recovery.on_message({.kind = Kind::kReady})) << "the peer has no offer of ours";
}

class LaneAccounts : public testing::Test {
 protected:
  static constexpr Bytes kBytes = 100;  // of each request
  // Posts requests 0, 1, ..., starts them on a lane, and loses them.
  void lose(const std::vector<Opcode>& opcodes) {
    for (const Opcode opcode : opcodes) {
      const WorkRequest request{.id = posted_++, .opcode = opcode};
      ASSERT_EQ(work_.post({&request, 1}), 1U);
      account_.on_lost({.number = work_.start(), .bytes = kBytes, .opcode = opcode});
    }
  }
  std::vector<uint64_t> completed() {
    std::vector<uint64_t> ids;
    WorkRequest request;
    CompletionStatus status{};
    while (work_.pop_completed(&request, &status)) {
      EXPECT_EQ(status, CompletionStatus::kOk);
      ids.push_back(request.id);
    }
    return ids;
  }
  std::vector<uint64_t> waiting() {
    std::vector<uint64_t> ids;
    for (const WorkRequest* next = work_.waiting(); next != nullptr; next = work_.waiting()) {
      ids.push_back(next->id);
      work_.start();
    }
    return ids;
  }

  using Ids = std::vector<uint64_t>;
  uint64_t posted_ = 0;
  WorkQueue work_{16};
  LaneAccount account_{16};
};

TEST_F(LaneAccounts, CountCoversRequestsUpToItsLastWriteWithImmediate) {
  lose({Opcode::kWrite, Opcode::kWriteWithImm, Opcode::kWrite, Opcode::kWriteWithImm,
        Opcode::kWrite});
  const auto resolved = account_.resolve(1, work_);
  ASSERT_TRUE(resolved);
  EXPECT_EQ(resolved->arrived, 2U);
  EXPECT_EQ(resolved->arrived_bytes, 2U * kBytes);
  EXPECT_EQ(resolved->put_back, 3U);
  EXPECT_EQ(completed(), (Ids{0, 1}));
  EXPECT_EQ(waiting(), (Ids{2, 3, 4}));
  EXPECT_EQ(account_.unresolved(), 0U);
}

TEST_F(LaneAccounts, UncountedWritesArePostedAgain) {
  lose({Opcode::kWrite, Opcode::kWrite});
  ASSERT_TRUE(account_.resolve(0, work_));
  EXPECT_EQ(completed(), Ids{});
  EXPECT_EQ(waiting(), (Ids{0, 1}));
}

TEST_F(LaneAccounts, ReadIsRepeatedEvenBeforeAnArrivedWrite) {
  lose({Opcode::kRead, Opcode::kWriteWithImm});
  ASSERT_TRUE(account_.resolve(1, work_));
  EXPECT_EQ(waiting(), (Ids{0}));
  work_.finish(0, CompletionStatus::kOk);
  EXPECT_EQ(completed(), (Ids{0, 1}));
}

TEST_F(LaneAccounts, DoneWritesCountUntilANewConnectionBegins) {
  account_.on_received();
  account_.on_done({.opcode = Opcode::kWriteWithImm});
  account_.on_done({.opcode = Opcode::kWrite});
  lose({Opcode::kWriteWithImm, Opcode::kWriteWithImm});
  EXPECT_FALSE(account_.resolve(0, work_)) << "fewer than were acknowledged";
  EXPECT_FALSE(account_.resolve(4, work_)) << "more than were sent";
  EXPECT_EQ(account_.received(), 1U);
  ASSERT_TRUE(account_.resolve(2, work_));
  EXPECT_EQ(account_.received(), 0U);
  EXPECT_EQ(completed(), (Ids{0}));
  EXPECT_EQ(waiting(), (Ids{1}));
  account_.on_lost({.number = 1, .opcode = Opcode::kWriteWithImm});
  ASSERT_TRUE(account_.resolve(1, work_));
  EXPECT_EQ(completed(), (Ids{1}));
}

TEST_F(LaneAccounts, RequestsPutBackPrecedeWaitingOnes) {
  lose({Opcode::kWrite, Opcode::kWrite});
  const std::array<WorkRequest, 3> more{WorkRequest{.id = 2}, {.id = 3}, {.id = 4}};
  ASSERT_EQ(work_.post(more), 3U);
  EXPECT_EQ(work_.start(), 2U) << "on another lane";
  ASSERT_TRUE(account_.resolve(0, work_));
  EXPECT_EQ(waiting(), (Ids{0, 1, 3, 4}));
  EXPECT_TRUE(work_.in_use(0));
}

TEST_F(LaneAccounts, AbandonedRequestsUseNoMemory) {
  lose({Opcode::kWrite});
  EXPECT_TRUE(work_.in_use(0));
  account_.abandon(work_);
  EXPECT_FALSE(work_.in_use(0));
  EXPECT_EQ(account_.unresolved(), 0U);
}

}  // namespace
}  // namespace pacecar::lane_recovery_test
