// SharedSender and SharedReceiver carry messages through memory that two processes of a host share.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "net_plugin/libfabric/link/same_host.h"
#include "transport/base/prng.h"

namespace pacecar::fabric::shared_ring_test {
namespace {

struct Ring {
  Ring() : receiver(SharedReceiver::map(*sender->descriptor())) {
    raw.reset(static_cast<SharedRing*>(mmap(nullptr, sizeof(SharedRing), PROT_READ | PROT_WRITE,
                                            MAP_SHARED, sender->descriptor()->get(), 0)));
  }
  void post(uint32_t slot, const std::vector<uint8_t>& bytes) const {
    std::ranges::copy(bytes, sender->slot(slot));
    sender->post(slot, bytes.size());
  }

  std::unique_ptr<SharedSender> sender = SharedSender::make();
  std::unique_ptr<SharedReceiver> receiver;
  MappedRing raw;  // for writes of a hostile process
};

std::vector<uint8_t> read(SharedReceiver& receiver) {
  const auto message = receiver.next().value();
  std::vector<uint8_t> bytes(message.begin(), message.end());
  EXPECT_TRUE(bytes.empty() || receiver.done());
  return bytes;
}

TEST(FiSharedRing, MessagesArriveInOrderWhateverSlotTheyAreIn) {
  const Ring ring;
  Prng random(1);
  std::vector<std::vector<uint8_t>> sent;
  size_t received = 0;
  for (int i = 0; i < 1000; ++i) {
    while (sent.size() - received < kMaxMessages && random.below(2) == 0) {
      sent.emplace_back(1 + random.below(3000), static_cast<uint8_t>(random.next_u64()));
      ring.post((sent.size() * 7) % kMaxMessages, sent.back());  // 7: each slot once in a round
      EXPECT_EQ(ring.sender->posted(), sent.size());
    }
    if (received < sent.size()) {
      ASSERT_EQ(read(*ring.receiver), sent[received]) << received;
      ++received;
    } else {
      EXPECT_TRUE(read(*ring.receiver).empty());
    }
    EXPECT_EQ(ring.sender->consumed().value(), received);
  }
  EXPECT_GT(received, 10 * kMaxMessages);
}

TEST(FiSharedRing, TheLargestMessageFits) {
  const Ring ring;
  const std::vector<uint8_t> large(kMessageBytes, 7);
  ring.post(kMaxMessages - 1, large);
  EXPECT_EQ(read(*ring.receiver), large);
}

TEST(FiSharedRing, MessageStaysUntilDoneIsCalled) {
  const Ring ring;
  ring.post(0, {1, 2, 3});
  EXPECT_EQ(ring.receiver->next()->size(), 3U);
  EXPECT_EQ(ring.receiver->next()->size(), 3U);
  EXPECT_EQ(ring.sender->consumed().value(), 0U);
}

// A message that rest() does not see is posted later, so its sender sees the sleeping receiver.
TEST(FiSharedRing, SleepingReceiverMustBeWoken) {
  const Ring ring;
  EXPECT_TRUE(ring.receiver->rest());
  EXPECT_FALSE(ring.sender->must_wake_receiver());  // no message is posted
  ring.post(0, {1});
  EXPECT_TRUE(ring.sender->must_wake_receiver());
  ring.sender->receiver_is_woken();
  EXPECT_FALSE(ring.sender->must_wake_receiver());
  EXPECT_EQ(read(*ring.receiver).size(), 1U);
  EXPECT_TRUE(ring.receiver->rest());
  EXPECT_TRUE(read(*ring.receiver).empty());  // the receiver polls, so it does not sleep
  ring.post(1, {1});
  EXPECT_FALSE(ring.sender->must_wake_receiver());
  EXPECT_FALSE(ring.receiver->rest());
}

// A wake-up that is missing would hang this test.
TEST(FiSharedRing, ReceiverIsWokenForEveryMessage) {
  constexpr uint64_t kMessages = 100'000;
  const Ring ring;
  std::mutex mutex;
  std::condition_variable wakes;
  uint64_t woken = 0;
  std::thread sender([&] {
    for (uint64_t i = 0; i < kMessages; ++i) {
      while (i - ring.sender->consumed().value() == kMaxMessages) std::this_thread::yield();
      std::memcpy(ring.sender->slot(i % kMaxMessages), &i, sizeof i);
      ring.sender->post(i % kMaxMessages, sizeof i);
      if (!ring.sender->must_wake_receiver()) continue;
      ring.sender->receiver_is_woken();
      const std::lock_guard lock(mutex);
      ++woken;
      wakes.notify_one();
    }
  });
  uint64_t seen = 0;
  for (uint64_t i = 0; i < kMessages;) {
    const auto message = read(*ring.receiver);
    if (!message.empty()) {
      uint64_t number = 0;
      std::memcpy(&number, message.data(), sizeof number);
      ASSERT_EQ(number, i);
      ++i;
      continue;
    }
    if (!ring.receiver->rest()) continue;
    std::unique_lock lock(mutex);
    wakes.wait(lock, [&] { return woken > seen; });
    seen = woken;
  }
  sender.join();
  EXPECT_GT(woken, 0U);
}

TEST(FiSharedRing, UnsealedSmallAndForeignFilesAreNotMapped) {
  EXPECT_EQ(SharedReceiver::map(FileDescriptor()), nullptr);
  const FileDescriptor unsealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), sizeof(SharedRing)), 0);
  EXPECT_EQ(SharedReceiver::map(unsealed), nullptr);  // the file could shrink
  const FileDescriptor small(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(small.get(), 4096), 0);
  ASSERT_EQ(fcntl(small.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_EQ(SharedReceiver::map(small), nullptr);
  EXPECT_EQ(SharedReceiver::map(FileDescriptor(open("/dev/null", O_RDWR))), nullptr);
}

TEST(FiSharedRing, SizeOfTheMemoryCannotChange) {
  const Ring ring;
  EXPECT_NE(ftruncate(ring.sender->descriptor()->get(), 0), 0);
  EXPECT_NE(ftruncate(ring.sender->descriptor()->get(), 2 * sizeof(SharedRing)), 0);
}

TEST(FiSharedRing, InvalidEntryOfAHostileSenderIsAnError) {
  const auto described = [](uint64_t slot, uint64_t bytes) {
    const Ring ring;
    ring.raw->entries[0] = uint64_t{1} << 32 | slot << 24 | bytes;
    return ring.receiver->next().has_value();
  };
  EXPECT_TRUE(described(kMaxMessages - 1, kMessageBytes));
  EXPECT_FALSE(described(kMaxMessages, 48));
  EXPECT_FALSE(described(255, 48));
  EXPECT_FALSE(described(0, 0));
  EXPECT_FALSE(described(0, kMessageBytes + 1));
  EXPECT_FALSE(described(0, 0xffffff));
}

TEST(FiSharedRing, ReceiverThatConsumesMoreThanWasPostedIsAnError) {
  const Ring ring;
  ring.post(0, {1});
  ring.raw->consumed = 1;
  EXPECT_EQ(ring.sender->consumed().value(), 1U);
  ring.raw->consumed = 2;
  EXPECT_FALSE(ring.sender->consumed());
}

}  // namespace
}  // namespace pacecar::fabric::shared_ring_test
