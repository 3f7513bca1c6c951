// The parts of Messenger, each alone over NICs in shared memory: control writes, flows, rates, and
// the detection of stalls.
#include <gtest/gtest.h>

#include "cc/grant_word.h"
#include "tests/support/memory_nic.h"
#include "tests/support/passing_nic.h"
#include "transport/message/flow_table.h"
#include "transport/message/messenger.h"
#include "transport/message/progress_watch.h"

namespace pacecar::test::parts_test {
namespace {

constexpr NicIdentity kPeer{7};
constexpr NicIdentity kOther{8};
constexpr Instant kStart = Instant::from_ns(1'000'000);
constexpr Duration kSilence = Duration::from_s(10);

MessengerConfig config_with(std::string_view allocator = "") {
  return {.allocator = std::string(allocator),
          .line_rate = Rate::from_gbps(100),
          .silence_limit = kSilence};
}

// The parts of one messenger that flows need.
struct Parts {
  Parts(Nic& nic, const MessengerConfig& parts_config)
      : Parts(nic, parts_config, RateControl::make(nic, parts_config).value()) {}
  Parts(Nic& nic, const MessengerConfig& parts_config, CongestionControl congestion)
      : config(parts_config),
        control(nic),
        rates(nic, config, control, std::move(congestion)),
        flows(nic, config, control, rates) {
    EXPECT_TRUE(control.register_memory());
  }

  const MessengerConfig config;
  ControlWrites control;
  RateControl rates;
  FlowTable flows;
};

class MessagePartsTest : public testing::Test {
 protected:
  // Makes a flow from NIC 0 to NIC 1 and connects both ends; its sender obeys the allocator.
  void join() {
    sending_ = sender_.flows.make(true, kPeer, 5).value();
    receiving_ = receiver_.flows.make(false, kOther, 5).value();
    receiving_->obeys = true;
    sending_->connections = receiving_->connections = 1;
    ASSERT_TRUE(receiver_.flows.join(*receiving_, sending_->local, kStart));
    ASSERT_TRUE(sender_.flows.join(*sending_, receiving_->local, kStart));
  }
  void turn() {
    nic0_.turn(1000);
    nic1_.turn(1000);
  }
  // The sender's NIC does up to `count` control writes and reports their completions.
  void finish_words(size_t count) {
    nic0_.turn(count);
    std::array<Completion, 64> done;
    for (size_t left = nic0_.poll(done); left > 0; --left) sender_.control.on_word_done(*sending_);
  }

  std::vector<MemoryNic*> all_;
  MemoryNic nic0_{all_, 0};
  MemoryNic nic1_{all_, 1};
  Parts sender_{nic0_, config_with()};
  Parts receiver_{nic1_, config_with()};
  MessageFlow* sending_ = nullptr;
  MessageFlow* receiving_ = nullptr;
};

TEST_F(MessagePartsTest, NewestWordReachesThePeerAndAnEqualWordIsNotSent) {
  join();
  sender_.control.queue(sending_->id, 11);
  sender_.control.queue(sending_->id, 12);
  sender_.control.post_pending(sender_.flows.all(), kStart);
  turn();
  EXPECT_EQ(receiver_.control.new_word(receiving_->id), 12U);
  receiver_.control.take_word(receiving_->id, 12);
  EXPECT_EQ(receiver_.control.new_word(receiving_->id), std::nullopt);

  sender_.control.queue(sending_->id, 12);
  sender_.control.post_pending(sender_.flows.all(), kStart);
  EXPECT_EQ(sending_->words_outstanding, 1U) << "the equal word was not posted";
}

TEST_F(MessagePartsTest, OnlyTheNewestWordIsKeptWhileNoWriteMayBePosted) {
  join();
  uint64_t word = 100;
  uint32_t most = 0;
  do {  // until no further write may be outstanding
    most = sending_->words_outstanding;
    sender_.control.queue(sending_->id, ++word);
    sender_.control.post_pending(sender_.flows.all(), kStart);
  } while (sending_->words_outstanding > most);
  sender_.control.queue(sending_->id, 7);
  sender_.control.post_pending(sender_.flows.all(), kStart);
  EXPECT_EQ(sending_->words_outstanding, most);

  finish_words(1);
  sender_.control.post_pending(sender_.flows.all(), kStart);
  finish_words(1000);
  EXPECT_EQ(sending_->words_outstanding, 0U);
  EXPECT_EQ(receiver_.control.new_word(receiving_->id), 7U);
}

TEST_F(MessagePartsTest, EndedFlowWritesNoWord) {
  join();
  sender_.control.queue(sending_->id, 11);
  sender_.flows.end(*sending_);
  sender_.control.post_pending(sender_.flows.all(), kStart);
  turn();
  EXPECT_EQ(receiver_.control.new_word(receiving_->id), std::nullopt);
}

TEST_F(MessagePartsTest, FlowIsSharedUnlessItIsDoubtedFullOrLeaving) {
  join();
  EXPECT_EQ(sender_.flows.find_shareable(kPeer), sending_);
  EXPECT_EQ(sender_.flows.find_shareable(kOther), nullptr);
  EXPECT_EQ(receiver_.flows.find_shareable(kOther), nullptr) << "this end receives";

  sending_->suspected = true;
  EXPECT_EQ(sender_.flows.find_shareable(kPeer), nullptr);
  sending_->suspected = false;
  for (uint32_t i = 0; i < Immediate::kMaxConnections; ++i) sending_->numbered.add(i);
  EXPECT_EQ(sender_.flows.find_shareable(kPeer), nullptr);
  sending_->numbered.remove(3);
  EXPECT_EQ(sender_.flows.find_shareable(kPeer), sending_);
  sender_.flows.release(*sending_, kStart);
  EXPECT_EQ(sender_.flows.find_shareable(kPeer), nullptr);
}

TEST_F(MessagePartsTest, ReceiverFindsAFlowByItsNumberAlsoWhileTheFlowLeaves) {
  join();
  EXPECT_EQ(receiver_.flows.find(kOther, 5), receiving_);
  EXPECT_EQ(receiver_.flows.find(kOther, 6), nullptr);
  EXPECT_EQ(receiver_.flows.find(kPeer, 5), nullptr);
  EXPECT_EQ(sender_.flows.find(kPeer, 5), nullptr) << "this end sends";
  receiver_.flows.release(*receiving_, kStart);
  EXPECT_EQ(receiver_.flows.find(kOther, 5), receiving_);
  receiver_.flows.end(*receiving_);
  EXPECT_EQ(receiver_.flows.find(kOther, 5), nullptr);
}

TEST_F(MessagePartsTest, AFlowWithoutConnectionsIsKeptForAFifthOfTheSilenceLimit) {
  join();
  const QueuePairId data = receiving_->data;
  receiver_.flows.release(*receiving_, kStart);
  EXPECT_TRUE(receiver_.flows.housekeeping_due());
  receiver_.flows.do_housekeeping(kStart + kSilence / 5 - Duration::from_ns(1));
  EXPECT_TRUE(nic1_.has(data));
  receiver_.flows.do_housekeeping(kStart + kSilence / 5);
  EXPECT_FALSE(nic1_.has(data));
  EXPECT_EQ(receiver_.flows.of(data), nullptr);
  EXPECT_TRUE(receiver_.flows.ids().empty());
  receiver_.flows.do_housekeeping(kStart + kSilence);
  EXPECT_FALSE(receiver_.flows.housekeeping_due());
}

TEST_F(MessagePartsTest, EndedFlowFreesItsQueuePairsAtOnceAndItsPlaceWithTheLastConnection) {
  join();
  sender_.flows.end(*sending_);
  EXPECT_FALSE(nic0_.has(sending_->data));
  EXPECT_FALSE(nic0_.has(sending_->control));
  EXPECT_EQ(sender_.flows.ids().size(), 1U);
  sender_.flows.release(*sending_, kStart);
  EXPECT_TRUE(sender_.flows.ids().empty());
}

TEST_F(MessagePartsTest, ActiveFlowWritesItsWordAfterASilence) {
  join();
  const auto words_at = [&](Instant now, bool active) {
    sender_.flows.begin_housekeeping();
    sending_->active = active;
    sender_.flows.do_housekeeping(now);
    return sending_->words_outstanding;
  };
  const uint32_t at_first = words_at(kStart + kSilence / 5 - Duration::from_ns(1), true);
  EXPECT_EQ(words_at(kStart + kSilence / 5, false), at_first) << "no request is pending";
  EXPECT_EQ(words_at(kStart + kSilence / 5, true), at_first + 1);
  EXPECT_EQ(words_at(kStart + kSilence / 5, true), at_first + 1) << "the silence has ended";
}

TEST_F(MessagePartsTest, FlowsAreLimitedToTheNicsAndARefusedFlowTakesNoPlace) {
  for (uint32_t i = 0; i < nic0_.caps().flows; ++i) {
    ASSERT_TRUE(sender_.flows.make(true, kPeer, i));
  }
  const auto refused = sender_.flows.make(true, kPeer, 99);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  MessageFlow& first = sender_.flows.all()[0];
  sender_.flows.remove(first, kStart);
  EXPECT_TRUE(sender_.flows.make(true, kPeer, 100));
}

TEST_F(MessagePartsTest, SenderThatIgnoresTheAllocatorIsGrantedTheLineRate) {
  join();
  receiving_->obeys = false;
  const Grant grant = wire::decode_grant(receiver_.rates.grant_word(*receiving_));
  EXPECT_NEAR(static_cast<double>(grant.rate.bps()), 100e9, 1e6) << "as exact as a word can hold";
  const Grant next = wire::decode_grant(receiver_.rates.grant_word(*receiving_));
  EXPECT_EQ(next.epoch, grant.epoch + 1) << "a sender under pace takes each epoch once";
}

TEST_F(MessagePartsTest, BacklogIsZeroOnceNoWriteIsAtTheNic) {
  join();
  sender_.rates.on_writes_posted(*sending_, 2, 9000);
  EXPECT_EQ(sending_->stats.backlog, 9000U);
  sender_.rates.on_write_done(*sending_);
  EXPECT_EQ(sending_->stats.backlog, 9000U)
      << "one write is not complete, and may not be acknowledged";
  sender_.rates.on_write_done(*sending_);
  EXPECT_EQ(sending_->stats.backlog, 0U);
}

TEST_F(MessagePartsTest, AnUnknownAllocatorIsRefusedByName) {
  const auto made = RateControl::make(nic0_, config_with("nobody"));
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("nobody"), std::string::npos) << made.error().message;
}

// Its flow 0 has had this round trip.
class SignallingNic : public PassingNic {
 public:
  explicit SignallingNic(MemoryNic& inner) : PassingNic(inner, inner.caps()) {}
  size_t poll_signals(std::span<FlowSignal> signals) override {
    if (round_trip == Duration()) return 0;
    signals[0] = {.flow = FlowId{0}, .rtt = std::exchange(round_trip, Duration())};
    return 1;
  }

  Duration round_trip;
};

class NotingAllocator : public Allocator {
 public:
  void add_flow(Instant, uint32_t) override {}
  void remove_flow(Instant, uint32_t) override {}
  void on_posted(Instant, uint32_t, Bytes) override {}
  void on_finished(Instant, uint32_t, Bytes) override {}
  void on_demand(Instant, uint32_t, const Demand&) override {}
  void on_round_trip(Duration least) override { least_ = least; }
  size_t poll_grants(Instant, std::span<GrantUpdate>) override { return 0; }
  Instant next_deadline() const override { return Instant::never(); }
  Grant grant(uint32_t) const override { return {}; }

  Duration least_;
};

TEST_F(MessagePartsTest, AllocatorHearsOfTheLeastRoundTripWhereNoneIsKnown) {
  SignallingNic nic(nic0_);
  for (const bool known : {false, true}) {
    MessengerConfig config = config_with();
    if (known) config.base_rtt = Duration::from_us(10);
    CongestionControl congestion = RateControl::make(nic, config).value();
    auto noting = std::make_unique<NotingAllocator>();
    const NotingAllocator& allocator = *noting;
    congestion.allocator = std::move(noting);
    Parts parts(nic, config, std::move(congestion));
    MessageFlow& flow = *parts.flows.make(true, kPeer, 5).value();
    ASSERT_EQ(flow.id, 0U);
    ASSERT_TRUE(parts.flows.join(flow, flow.local, kStart));
    for (const int64_t us : {300, 200, 400}) {
      nic.round_trip = Duration::from_us(us);
      parts.rates.poll_signals(parts.flows.all(), kStart);
    }
    EXPECT_EQ(allocator.least_, known ? Duration() : Duration::from_us(200));
    parts.flows.remove(flow, kStart);
  }
}

// A NIC that takes a turn in each call that ends something; the peer writes to its table in each.
class BusyNic : public PassingNic {
 public:
  explicit BusyNic(MemoryNic& inner) : PassingNic(inner, inner.caps()), memory_(inner) {}
  void destroy_queue_pair(QueuePairId id) override {
    turn();
    PassingNic::destroy_queue_pair(id);
  }
  std::shared_ptr<void> deregister_memory(const MemoryRegion& region) override {
    turn();
    return PassingNic::deregister_memory(region);
  }
  RemoteAddress table;
  int turns = 0;

 private:
  void turn() {
    constexpr std::array<uint8_t, 64> kSlot{};
    turns += memory_.write(table.key, table.address, kSlot) ? 1 : 0;
  }
  MemoryNic& memory_;
};

TEST(MessengerEnd, TablesOutliveTheLastTurnOfTheNic) {
  std::vector<MemoryNic*> all;
  MemoryNic memory(all, 0);
  BusyNic nic(memory);
  auto messenger = Messenger::create(nic, config_with(), kStart).value();
  const auto offered = messenger->open_send(kPeer, kStart).value();
  nic.table = decode_offer(offered.offer).value().table;
  messenger.reset();  // crashes, or fails under the address sanitizer, if the table is freed first
  EXPECT_EQ(nic.turns, 3) << "destroys two queue pairs and deregisters one region";
}

bool stalls(ProgressWatch& watch, bool waits, uint64_t moves, Instant now) {
  watch.update(waits, moves, now);
  return watch.stalled();
}

// Updates up to and including `until`, every 500 ms; true if it has stalled after any update.
bool attend(ProgressWatch& watch, bool waits, Instant& now, Instant until) {
  bool stalled = false;
  while (now < until) {
    now = std::min(now + Duration::from_ms(500), until);
    stalled |= stalls(watch, waits, 1, now);
  }
  return stalled;
}

TEST(ProgressWatchTest, StallBeginsAfterTheLimitAndEndsWithProgress) {
  ProgressWatch watch;
  Instant now = kStart;
  EXPECT_FALSE(stalls(watch, true, 1, now));
  EXPECT_FALSE(attend(watch, true, now, kStart + kStallLimit - Duration::from_ns(1)));
  EXPECT_TRUE(attend(watch, true, now, kStart + kStallLimit));
  EXPECT_EQ(watch.stalled_for(now).ns(), kStallLimit.ns());
  EXPECT_TRUE(attend(watch, true, now, kStart + kStallLimit * 2)) << "the stall continues";
  EXPECT_EQ(watch.stalled_for(now).ns(), kStallLimit.ns() * 2);
  EXPECT_FALSE(stalls(watch, true, 2, now)) << "the stall ends";
}

TEST(ProgressWatchTest, StallNeedsAPendingRequest) {
  ProgressWatch watch;
  Instant now = kStart;
  EXPECT_FALSE(attend(watch, false, now, kStart + kStallLimit * 2));
  EXPECT_FALSE(watch.waits());
  EXPECT_FALSE(stalls(watch, true, 1, now)) << "the wait begins now";
  EXPECT_FALSE(attend(watch, true, now, kStart + kStallLimit * 3 - Duration::from_ns(1)));
  EXPECT_TRUE(attend(watch, true, now, kStart + kStallLimit * 3));
  EXPECT_FALSE(stalls(watch, false, 1, now)) << "the request is gone";
}

TEST(ProgressWatchTest, TimeInWhichThisHostWasSuspendedIsNoStall) {
  ProgressWatch watch;
  Instant now = kStart;
  watch.update(true, 1, now);
  attend(watch, true, now, kStart + Duration::from_s(1));
  now = now + Duration::from_s(18);
  EXPECT_FALSE(stalls(watch, true, 1, now));
  EXPECT_EQ(watch.stalled_for(now).ns(), Duration::from_s(2).ns());
  EXPECT_TRUE(attend(watch, true, now, now + Duration::from_s(1)));
}

}  // namespace
}  // namespace pacecar::test::parts_test
