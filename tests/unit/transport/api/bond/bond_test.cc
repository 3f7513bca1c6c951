// Bonded connections: every byte arrives once while NICs fail, as long as one NIC works.
#include <gtest/gtest.h>

#include <deque>

#include "tests/support/bond_world.h"
#include "tests/support/draws.h"
#include "tests/support/pending.h"
#include "tests/support/waiting.h"

namespace pacecar::test::bond_test {
namespace {

constexpr size_t kLargest = 300'000;

size_t random_size(Prng& random) {
  switch (random.below(4)) {
    case 0: return 0;
    case 1: return random.below(200);
    case 2: return random.below(40'000);
    default: return random.below(kLargest);
  }
}

// Keeps `depth` messages in flight until `count` are complete. Calls `at(i)` before message i, and
// `at(count)` at the end.
template <typename At>
void exchange(BondWorld& world, size_t count, size_t depth, uint64_t seed, At at) {
  Prng random(seed);
  std::vector<std::unique_ptr<BondTransfer>> transfers;
  for (size_t i = 0; i < depth; ++i) {
    transfers.push_back(std::make_unique<BondTransfer>(world.from(), world.to(), kLargest));
  }
  size_t started = 0;
  size_t done = 0;
  Waiting waiting;
  for (; done < count; waiting.pause()) {
    ASSERT_FALSE(waiting.hangs()) << done << " of " << count << " messages are complete";
    while (started < count && started - done < depth) {
      at(started);
      BondTransfer& next = *transfers[started % depth];
      if (started >= depth) next.expect_untouched();
      next.start(world.send(), world.receive(), random_size(random), random.next_u64());
      ++started;
    }
    while (done < started && transfers[done % depth]->poll(world.send(), world.receive())) {
      ASSERT_EQ(transfers[done % depth]->failure(), "") << "message " << done;
      ++done;
      waiting.restart();
    }
  }
  at(count);
  for (const auto& transfer : transfers) transfer->expect_untouched();
}

struct Shape {
  size_t from;
  size_t to;
};

class BondShapes : public testing::TestWithParam<Shape> {};

TEST_P(BondShapes, MessagesArriveCompletely) {
  BondWorld world(GetParam().from, GetParam().to);
  exchange(world, 400, 8, 1, [](size_t) {});
  for (size_t i = 0; i < GetParam().from; ++i) EXPECT_GT(world.from().bytes_sent(i), 0U) << i;
}

INSTANTIATE_TEST_SUITE_P(Nics, BondShapes,
                         testing::Values(Shape{1, 2}, Shape{2, 1}, Shape{2, 2}, Shape{3, 2},
                                         Shape{4, 4}, Shape{1, 8}),
                         [](const auto& shape) {
                           return std::to_string(shape.param.from) + "To" +
                                  std::to_string(shape.param.to);
                         });

class BondLoss : public testing::TestWithParam<uint64_t> {};

TEST_P(BondLoss, RemainingLaneCarriesTheMessages) {
  const uint64_t seed = GetParam();
  Prng random(seed);
  BondWorld world(2, 2);
  const size_t lost = random.below(2);
  const size_t when = random.below(200);
  const bool at_sender = random.below(2) == 0;
  exchange(world, 400, 8, seed, [&](size_t message) {
    if (message == when) (at_sender ? world.from() : world.to()).cut(lost);
  });
}

INSTANTIATE_TEST_SUITE_P(Seeds, BondLoss, testing::Range<uint64_t>(0, test::draws(9)));

class BondStorm : public testing::TestWithParam<uint64_t> {};

// All lanes but one are lost, at either end, in both directions or one, some of them while the ends
// are still recovering from another loss.
TEST_P(BondStorm, MessagesArriveOverTheLastLane) {
  Prng random(GetParam());
  BondWorld world(4, 4);
  constexpr size_t kMessages = 200;
  const size_t kept = random.below(4);
  std::vector<std::vector<size_t>> losses(kMessages + 1);
  const size_t first = random.below(kMessages / 2);
  for (size_t lane = 0; lane < 4; ++lane) {
    if (lane != kept) losses[first + random.below(20)].push_back(lane);
  }
  exchange(world, kMessages, 8, GetParam(), [&](size_t message) {
    for (const size_t lane : losses[message]) {
      BondDevice& device = random.below(2) == 0 ? world.from() : world.to();
      device.cut(lane, random.below(2) == 0 ? Cut::kBoth : Cut::kOutgoing);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Seeds, BondStorm, testing::Range<uint64_t>(0, test::draws(5)));

TEST(Bond, LanesMayBeLostOneAfterAnother) {
  BondWorld world(4, 4);
  exchange(world, 600, 8, 3, [&](size_t message) {
    if (message == 100) world.from().cut(2);
    if (message == 250) world.to().cut(0);
    if (message == 400) world.to().cut(1);
  });
}

// Packets of the lost lane arrive after their messages have been retransmitted, when the buffers
// belong to the application again.
TEST(Bond, LatePacketsDoNotChangeBuffers) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    // Both ends close the flow of the lost lane long before it would time out.
    BondWorld world(2, 2);
    exchange(world, 400, 8, seed, [&](size_t message) {
      if (message == 100) world.from().cut(seed % 2, Cut::kOutgoing);
      if (message < 400) return;
      world.from().mend(seed % 2);
      const Instant arrived = clock_now() + Duration::from_ms(50);
      while (clock_now() < arrived) world.to().engine(seed % 2).progress();
    });
  }
}

TEST(Bond, TwoLanesMayBeLostAtOnce) {
  BondWorld world(3, 3);
  exchange(world, 300, 8, 4, [&](size_t message) {
    if (message == 100) world.from().cut(0);
    if (message == 100) world.to().cut(2);
  });
}

TEST(Bond, LaneMayBeLostWhileTheConnectionIsIdle) {
  BondWorld world(2, 2);
  exchange(world, 20, 4, 5, [](size_t) {});
  world.to().cut(0);
  exchange(world, 20, 4, 6, [](size_t) {});
}

TEST(Bond, LossOfAllLanesFailsTheMessageWithTheCause) {
  BondWorld world(2, 2, Duration::from_ms(500));
  exchange(world, 20, 4, 7, [](size_t) {});
  world.to().cut(0);
  world.to().cut(1);
  BondTransfer transfer(world.from(), world.to(), kLargest);
  transfer.start(world.send(), world.receive(), kLargest, 8);
  ASSERT_TRUE(eventually([&] { return transfer.poll(world.send(), world.receive()); }));
  EXPECT_NE(transfer.failure().find("answer"), std::string::npos) << transfer.failure();
  uint8_t byte = 0;
  EXPECT_FALSE(world.send().isend(&byte, 0, 7, nullptr));
}

TEST(Bond, PeerDeathDuringLaneRecoveryFailsTheMessage) {
  BondWorld world(2, 2);
  exchange(world, 20, 4, 13, [](size_t) {});
  world.from().cut(0);
  BondTransfer transfer(world.from(), world.to(), kLargest);
  transfer.start(world.send(), world.receive(), kLargest, 14);
  const Instant dead = clock_now() + Duration::from_ms(120);  // lane 1 has transferred its part
  while (clock_now() < dead) transfer.poll(world.send(), world.receive());
  world.to().cut(0);
  world.to().cut(1);
  ASSERT_TRUE(eventually([&] { return transfer.poll(world.send(), world.receive()); }));
  EXPECT_NE(transfer.failure(), "");
}

// The receiver has the whole message, and closes before the sender gets the acknowledgements.
TEST(Bond, MessageReceivedBeforeTheCloseCompletesTheSend) {
  BondWorld world(2, 2);
  exchange(world, 20, 4, 15, [](size_t) {});
  std::vector<uint8_t> bytes(kLargest), place(kLargest);
  const auto out = world.from().register_memory(bytes);
  const auto in = world.to().register_memory(place);
  const ReceiveBuffer buffer{place.data(), place.size(), 0, in.get()};
  Request* receiving = world.receive().irecv({&buffer, 1}).value();
  const Instant advertised = clock_now() + Duration::from_ms(20);
  while (clock_now() < advertised) world.receive().test(receiving).value();
  world.to().cut(0, Cut::kOutgoing);  // its acknowledgements
  Request* sending = world.send().isend(bytes.data(), bytes.size(), 0, out.get()).value();
  ASSERT_TRUE(eventually([&] {
    if (world.receive().test(receiving).value().done) return true;
    world.send().test(sending).value();
    return false;
  }));
  world.close_receive();
  Result<TestResult> sent = TestResult();
  ASSERT_TRUE(eventually([&] {
    sent = world.send().test(sending);
    return !sent || sent->done;
  }));
  EXPECT_TRUE(sent) << sent.error().message;
}

// A peer that pauses is silent on all lanes. No lane is lost for that.
TEST(Bond, PausedPeerLosesNoLane) {
  BondWorld world(2, 2, Duration::from_s(10));
  exchange(world, 20, 4, 9, [](size_t) {});
  world.to().cut(0);
  world.to().cut(1);
  BondTransfer transfer(world.from(), world.to(), kLargest);
  transfer.start(world.send(), world.receive(), kLargest, 10);
  const Instant mended = clock_now() + Duration::from_ms(3500);
  for (const Waiting waiting; clock_now() < mended; waiting.pause()) {
    transfer.poll(world.send(), world.receive());
  }
  world.to().mend(0);
  world.to().mend(1);
  ASSERT_TRUE(eventually([&] { return transfer.poll(world.send(), world.receive()); }));
  EXPECT_EQ(transfer.failure(), "");
  const uint64_t before = world.from().bytes_sent(0);
  const uint64_t other = world.from().bytes_sent(1);
  exchange(world, 50, 4, 11, [](size_t) {});
  EXPECT_GT(world.from().bytes_sent(0), before);
  EXPECT_GT(world.from().bytes_sent(1), other);
}

TEST(Bond, TagsChooseTheBuffersOfAGroup) {
  BondWorld world(2, 2);
  constexpr size_t kSize = 50'000;
  std::vector<std::vector<uint8_t>> out(8, std::vector<uint8_t>(kSize));
  std::vector<std::vector<uint8_t>> in(8, std::vector<uint8_t>(kSize));
  std::vector<BondDevice::Registered> memory;
  std::vector<ReceiveBuffer> buffers;
  for (size_t i = 0; i < 8; ++i) {
    std::ranges::fill(out[i], static_cast<uint8_t>(i + 1));
    memory.push_back(world.from().register_memory(out[i]));
    memory.push_back(world.to().register_memory(in[i]));
    buffers.push_back({in[i].data(), kSize, static_cast<int>(i), memory.back().get()});
  }
  Request* receiving = world.receive().irecv(buffers).value();
  std::vector<Request*> sending;
  for (size_t i = 8; i-- > 0;) {
    if (i == 3) world.from().cut(1);
    sending.push_back(world.send()
                          .isend(out[i].data(), kSize - i, static_cast<int>(i), memory[2 * i].get())
                          .value());
  }
  TestResult result;
  ASSERT_TRUE(eventually([&] {
    if (!result.done) result = world.receive().test(receiving).value();
    std::erase_if(sending,
                  [&](Request* request) { return world.send().test(request).value().done; });
    return result.done && sending.empty();
  }));
  ASSERT_EQ(result.count, 8);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(result.sizes[i], kSize - i);
    EXPECT_EQ(std::memcmp(in[i].data(), out[i].data(), kSize - i), 0) << i;
  }
}

// Sends a message into a buffer of `kept` of its bytes.
void send_too_much(BondWorld& world, size_t kept, Result<TestResult>* sent,
                   Result<TestResult>* received) {
  std::vector<uint8_t> from(100'000, 7);
  std::vector<uint8_t> to(100'000, 9);
  const auto out = world.from().register_memory(from);
  const auto in = world.to().register_memory(to);
  const ReceiveBuffer buffer{to.data(), kept, 0, in.get()};
  Request* const receiving = world.receive().irecv({&buffer, 1}).value();
  Request* const sending = world.send().isend(from.data(), from.size(), 0, out.get()).value();
  *sent = *received = TestResult();
  const auto waits = [](const Result<TestResult>& end) { return end && !end->done; };
  ASSERT_TRUE(eventually([&] {
    if (waits(*sent)) *sent = world.send().test(sending);
    if (waits(*received)) *received = world.receive().test(receiving);
    return !waits(*sent) && !waits(*received);
  }));
  const auto end = to.begin() + static_cast<ptrdiff_t>(kept);
  if (*received) {
    EXPECT_EQ(std::count(to.begin(), end, 7), end - to.begin());
  }
  EXPECT_EQ(std::count(end, to.end(), 9), to.end() - end);
}

TEST(Bond, OversizedMessageFailsAtBothEnds) {
  BondWorld world(2, 2);
  Result<TestResult> sent = TestResult();
  Result<TestResult> received = TestResult();
  send_too_much(world, 99'999, &sent, &received);
  for (const Result<TestResult>* end : {&sent, &received}) {
    ASSERT_FALSE(*end);
    const std::string& message = end->error().message;
    EXPECT_NE(message.find("larger than the posted receive buffer"), std::string::npos) << message;
  }
}

// Random notes of a peer may fail the peer's own messages, and nothing else.
TEST(Bond, RandomNotesDoNotCrash) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Prng random(seed);
    BondWorld world(2, 2, Duration::from_ms(300));
    BondTransfer transfer(world.from(), world.to(), kLargest);
    transfer.start(world.send(), world.receive(), kLargest, seed);
    uint64_t number = 0;
    const Instant end = clock_now() + Duration::from_ms(60);
    while (clock_now() < end) {
      LaneNote note{.epoch = static_cast<uint32_t>(random.below(3)),
                    .kind = static_cast<uint8_t>(random.below(8)),
                    .lanes = static_cast<uint8_t>(random.next_u64()),
                    .next = random.below(2) * random.next_u64(),
                    .done = {random.next_u64(), random.next_u64(), 0, ~0ULL}};
      note.number = ++number;
      const bool to_sender = random.below(2) == 0;
      const BondDevice& device = to_sender ? world.to() : world.from();
      device.engine(random.below(2)).exclusively([&](Messenger& messenger, Nic&, Instant) {
        to_sender ? messenger.lanes(Direction::kReceive).write_note(0, note)
                  : messenger.lanes(Direction::kSend).write_note(0, note);
      });
      if (transfer.busy()) transfer.poll(world.send(), world.receive());
    }
  }
}

// Each lane has its own queue pair: a peer may write a whole message on each.
TEST(Bond, WholeMessageOnEachLaneBreaksTheProtocol) {
  constexpr size_t kSize = 1000;
  BondWorld world(2, 2);
  std::vector<uint8_t> in(kSize);
  std::vector<uint8_t> out(kSize);
  const auto in_memory = world.to().register_memory(in);
  const auto out_memory = world.from().register_memory(out);
  const ReceiveBuffer buffer{in.data(), in.size(), 7, in_memory.get()};
  Request* receiving = world.receive().irecv({&buffer, 1}).value();
  std::array<MessageSend, 2> sent;
  for (size_t lane = 0; lane < sent.size(); ++lane) {
    world.from().engine(lane).exclusively([&](Messenger& messenger, Nic&, Instant) {
      ASSERT_TRUE(messenger.send(
          0,
          test::pending(
              sent[lane],
              {.data = out.data(), .size = kSize, .tag = 7, .key = out_memory->region(lane).key})));
    });
  }
  Result<TestResult> result = TestResult();
  ASSERT_TRUE(eventually([&] {
    for (size_t nic = 0; nic < sent.size(); ++nic) world.from().engine(nic).progress();
    result = world.receive().test(receiving);
    return !result || result->done;
  }));
  ASSERT_FALSE(result) << result->sizes[0] << " bytes are reported in a buffer of " << kSize;
  EXPECT_NE(result.error().message.find("broke the protocol"), std::string::npos)
      << result.error().message;
}

TEST(Bond, ClosedReceiverFailsTheSend) {
  BondWorld world(2, 2);
  exchange(world, 20, 4, 12, [](size_t) {});
  uint8_t byte = 0;
  Request* sending = world.send().isend(&byte, 0, 0, nullptr).value();
  world.close_receive();
  Result<TestResult> result = TestResult();
  ASSERT_TRUE(eventually([&] {
    result = world.send().test(sending);
    return !result || result->done;
  }));
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("closed the connection"), std::string::npos);
}

}  // namespace
}  // namespace pacecar::test::bond_test
