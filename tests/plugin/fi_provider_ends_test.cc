// The libfabric provider: peers that close their endpoints, or end.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "tests/support/fi_world.h"

namespace pacecar::test::fi_provider_ends_test {
namespace {

TEST(FiProviderEnds, OperationsWithAKilledPeerFail) {
  const std::vector<int> statuses = run_processes(2, [](Rank& rank) {
    World world(rank);
    const auto large = pattern(1 << 20, 1);
    if (!world.first()) {
      expect_tagged(world, pattern(10, 2), 1);
      kill(getpid(), SIGKILL);
    }
    send_tagged(world, pattern(10, 2), 1);
    uint64_t place = 0;
    world.end.until_taken([&] {
      return fi_trecv(world.end.endpoint, &place, sizeof place, nullptr, world.other(), 9, 0,
                      &place);
    });
    int context = 0;
    world.end.until_taken([&] {
      return fi_tsend(world.end.endpoint, large.data(), large.size(), nullptr, world.other(), 2,
                      &context);
    });
    const int error = world.end.outcome_of(&context).error;
    EXPECT_TRUE(error == FI_ECONNRESET || error == FI_ECONNREFUSED) << fi_strerror(error);
    EXPECT_EQ(world.end.outcome_of(&place).error, FI_ECONNRESET);
  });
  EXPECT_EQ(statuses[0], 0);
  EXPECT_TRUE(WIFSIGNALED(statuses[1]));
}

// 7 messages more than the completion queue has room for. They wait in the receiver's buffers, of
// which 8 are free at any time: 7 hold one message each, and one holds the farewell.
constexpr uint64_t kQueueRoom = 4096;
constexpr uint64_t kMessagesOfEnded = kQueueRoom + 7;

// The sender closes its endpoint; the receiver reads its completions only after that.
void expect_received_from_ended(Rank& rank, const std::function<void(World&, uint64_t&)>& send) {
  std::optional<World> world(rank);
  // 64 bytes more than needed: a multi-receive buffer with less room than that is given back.
  std::vector<uint64_t> place(kMessagesOfEnded + 8);
  if (world->first()) {
    std::vector<uint64_t> numbers(kMessagesOfEnded);
    for (uint64_t i = 0; i < kMessagesOfEnded; ++i) send(*world, numbers[i] = i);
    world.reset();
    return rank.barrier();
  }
  const iovec iov{place.data(), place.size() * sizeof(uint64_t)};
  const fi_msg message{.msg_iov = &iov, .iov_count = 1, .context = &place};
  must(fi_recvmsg(world->end.endpoint, &message, FI_MULTI_RECV), "fi_recvmsg");
  std::atomic<bool> closed = false;
  std::thread waiter([&] {
    rank.barrier();
    closed = true;
  });
  const auto makes_progress = [&] {
    const ssize_t read = fi_cq_read(world->end.completions, nullptr, 0);
    ASSERT_TRUE(read == 0 || read == -FI_EAGAIN) << read;
  };
  const auto makes_progress_for = [&](std::chrono::milliseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    for (const Waiting idle; std::chrono::steady_clock::now() < until; idle.pause()) {
      makes_progress();
    }
  };
  for (const Waiting idle; !closed; idle.pause()) makes_progress();
  waiter.join();
  makes_progress_for(std::chrono::milliseconds(800));
  for (uint64_t i = 0; i < kMessagesOfEnded; ++i) {
    ASSERT_EQ(world->end.next().error, 0) << i;
    ASSERT_EQ(place[i], i);
    if (i < kMessagesOfEnded - kQueueRoom) makes_progress_for(std::chrono::milliseconds(20));
  }
}

void inject(World& world, const uint64_t& number) {
  world.end.until_taken(
      [&] { return fi_inject(world.end.endpoint, &number, sizeof number, world.other()); });
}

TEST(FiProviderEnds, MessagesSentBeforeTheSenderEndedAreReceived) {
  expect_processes_pass(2, [](Rank& rank) { expect_received_from_ended(rank, inject); });
}

// The connection is not open yet when the sender closes its endpoint.
TEST(FiProviderEnds, AMessageInjectedBeforeTheEndpointClosesIsReceived) {
  expect_processes_pass(2, [](Rank& rank) {
    World world(rank);
    const std::vector<uint8_t> bytes = pattern(64, 1);
    if (!world.first()) return expect_tagged(world, bytes, 3);
    world.end.until_taken([&] {
      return fi_tinject(world.end.endpoint, bytes.data(), bytes.size(), world.other(), 3);
    });
  });
}

// The receiver makes no progress from the first bytes until the sender has closed its endpoint.
TEST(FiProviderEnds, ALargeMessageSentBeforeTheEndpointClosedIsReceived) {
  for (const bool puts_known : {false, true}) {
    expect_processes_pass(2, [&](Rank& rank) {
      setenv("PACECAR_EXPERT_CMA", "off", 1);
      std::optional<World> world(rank);
      const std::vector<uint8_t> bytes = pattern(32 << 20, 1);
      const auto exchange = [&] {
        world->first() ? send_tagged(*world, bytes, 1) : expect_tagged(*world, bytes, 1);
      };
      if (puts_known) exchange();
      std::vector<uint8_t> place(bytes.size());
      int context = 0;
      if (!world->first()) {
        world->end.until_taken([&] {
          return fi_trecv(world->end.endpoint, place.data(), place.size(), nullptr, world->other(),
                          2, 0, &context);
        });
      }
      world->meet();
      if (world->first()) {
        send_tagged(*world, bytes, 2);
        world.reset();
      } else {
        while (std::atomic_ref(place.front()).load() != bytes.front()) world->end.progress();
      }
      rank.barrier();
      if (!world) return;
      EXPECT_EQ(world->end.outcome_of(&context).error, 0);
      EXPECT_TRUE(place == bytes);
    });
  }
}

// 256 MiB of messages wait for receives, and a few more in the receiver's buffers.
TEST(FiProviderEnds, MessagesForWhichThereWasNoRoomAreReceivedAfterTheSenderEnded) {
  constexpr size_t kBytes = 512 << 10;
  constexpr uint64_t kRoom = 511;
  constexpr uint64_t kMessages = kRoom + 7;
  expect_processes_pass(2, [&](Rank& rank) {
    setenv("PACECAR_EXPERT_CMA", "off", 1);
    std::optional<World> world(rank);
    const std::vector<uint8_t> bytes = pattern(kBytes, 1);
    if (world->first()) {
      for (uint64_t i = 0; i < kMessages; ++i) send_tagged(*world, bytes, i);
      world.reset();
      return;
    }
    int context = 0;
    const auto has_arrived = [&](uint64_t tag) {
      const fi_msg_tagged message{.addr = world->other(), .tag = tag, .context = &context};
      must(fi_trecvmsg(world->end.endpoint, &message, FI_PEEK), "fi_trecvmsg");
      return world->end.outcome_of(&context).error == 0;
    };
    for (const Waiting idle; !has_arrived(kRoom - 1); idle.pause()) continue;
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(1200);
    for (const Waiting idle; std::chrono::steady_clock::now() < until; idle.pause()) {
      world->end.progress();
    }
    for (uint64_t i = 0; i < kMessages; ++i) expect_tagged(*world, bytes, i);
  });
}

// The last messages ask for replies, which fail because the sender has ended.
TEST(FiProviderEnds, MessagesAreReceivedAlthoughTheirRepliesFail) {
  expect_processes_pass(2, [](Rank& rank) {
    expect_received_from_ended(rank, [](World& world, uint64_t& number) {
      if (number < kQueueRoom) return inject(world, number);
      const iovec iov{&number, sizeof number};
      const fi_msg message{.msg_iov = &iov, .iov_count = 1, .addr = world.other()};
      world.end.until_taken(
          [&] { return fi_sendmsg(world.end.endpoint, &message, FI_DELIVERY_COMPLETE); });
    });
  });
}

}  // namespace
}  // namespace pacecar::test::fi_provider_ends_test
