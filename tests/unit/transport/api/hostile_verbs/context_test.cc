// A Context's memory over hostile devices: registrations during traffic, flushes of GPU
// memory by each NIC of a device.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/support/hostile_process.h"
#include "tests/support/hostile_verbs/gpu_memory.h"
#include "tests/support/monotonic_now.h"
#include "transport/base/file_descriptor.h"

namespace pacecar::test::context_test {
namespace {

using hostile::Behavior;
using hostile::GpuBuffer;

constexpr size_t kSize = 1 << 20;

// Two processes with `nics` devices each; messages go into GPU memory of the second process.
class GpuMessages {
 public:
  explicit GpuMessages(uint32_t nics, Behavior behavior = {.late_landing = 200}) {
    behavior.devices = 2 * nics;
    hostile::configure(behavior);
    from_ = std::make_unique<HostileProcess>(0, nics);
    to_ = std::make_unique<HostileProcess>(nics, nics);
    ends_ = connect(from_->context(), 0, to_->context(), 0).value();
    std::iota(bytes_.begin(), bytes_.end(), uint8_t{3});
    source_ = from_->register_memory(bytes_.data(), kSize, MemoryKind::kHost);
    target_ = to_->register_memory(gpu_.address(), kSize, MemoryKind::kCuda);
  }
  ~GpuMessages() {
    EXPECT_TRUE(from_->context().deregister_memory(0, source_));
    EXPECT_TRUE(to_->context().deregister_memory(0, target_));
  }

  void carry(size_t size = kSize) {
    std::ranges::fill(gpu_.as_gpu_sees(), uint8_t{0});
    const ReceiveBuffer buffer{gpu_.address(), size, 0, target_};
    Request* receiving = ends_.receive->irecv({&buffer, 1}).value();
    Request* const sending = ends_.send->isend(bytes_.data(), size, 0, source_).value();
    await(*ends_.receive, receiving);
    await(*ends_.send, sending);
  }
  Context& receiver() { return to_->context(); }
  bool seen_by_gpu() const { return std::ranges::equal(gpu_.as_gpu_sees(), bytes_); }
  // True: the GPU sees everything that was received; false: the flush failed.
  bool flush() {
    const auto started = receiver().start_flush(0, target_, gpu_.address());
    if (!started) return false;
    EXPECT_TRUE(*started) << "nothing was read";
    if (!*started) return true;
    for (;;) {
      const auto done = receiver().flushed(0, **started);
      if (!done || *done) return done.has_value();
    }
  }

 private:
  template <typename End>
  static void await(End& end, Request* request) {
    for (;;) {
      const auto status = end.test(request);
      if (!status) throw std::runtime_error(status.error().message);
      if (status->done) return;
    }
  }

  std::unique_ptr<HostileProcess> from_;
  std::unique_ptr<HostileProcess> to_;
  Ends ends_;
  std::vector<uint8_t> bytes_ = std::vector<uint8_t>(kSize);
  GpuBuffer gpu_{kSize};
  const Memory* source_ = nullptr;
  const Memory* target_ = nullptr;
};

TEST(VerbsContext, FlushPushesTheWritesOfEachNic) {
  for (const uint32_t nics : {1U, 2U}) {
    GpuMessages messages(nics);
    messages.carry();
    EXPECT_FALSE(messages.seen_by_gpu()) << "the devices are not hostile enough";
    EXPECT_TRUE(messages.flush());
    EXPECT_TRUE(messages.seen_by_gpu());
  }
}

// The writes of a lost NIC may not have reached the GPU.
TEST(VerbsContext, FlushFailsIfANicThatHasWrittenIsLost) {
  for (const uint32_t killed : {2U, 3U}) {
    GpuMessages messages(2);
    messages.carry();
    hostile::kill_device(killed);
    EXPECT_FALSE(messages.flush()) << "lost device " << killed;
  }
}

TEST(VerbsContext, LostNicWithoutNewWritesIsLeftOut) {
  GpuMessages messages(2);
  messages.carry();
  EXPECT_TRUE(messages.flush());
  hostile::kill_device(3);
  EXPECT_TRUE(messages.flush());
  messages.carry();
  EXPECT_TRUE(messages.flush());
  EXPECT_TRUE(messages.seen_by_gpu());
}

// A NIC may acknowledge a write long before it completes the receive: when a bond lane is lost, the
// completions that are still to come belong to earlier messages.
TEST(VerbsContext, LateCompletionsAreNotCountedForLaterMessages) {
  GpuMessages messages(2, {.late_receives = 1'000});
  for (int i = 0; i < 3; ++i) messages.carry();
  EXPECT_TRUE(messages.flush());
  hostile::kill_device(3);
  for (int i = 0; i < 3; ++i) messages.carry();
  EXPECT_TRUE(messages.flush());
  EXPECT_TRUE(messages.seen_by_gpu());
}

TEST(VerbsContext, MessagesMoveWhileMemoryIsRegistered) {
  constexpr int kEnough = 10;
  GpuMessages messages(1, {.registration = Duration::from_ms(50)});
  std::vector<uint8_t> others(1000);
  std::atomic<size_t> step = 0;  // even: a registration; odd: a deregistration
  std::atomic<bool> over = false;
  std::thread registering([&] {
    while (!over) {
      const auto memory =
          messages.receiver().register_memory(0, others.data(), others.size()).value();
      ++step;
      EXPECT_TRUE(messages.receiver().deregister_memory(0, memory));
      ++step;
    }
  });
  std::array<int, 2> moved{};
  const Instant limit = monotonic_now() + Duration::from_s(60);
  size_t last = ~size_t{0};
  while (std::ranges::min(moved) <= kEnough && monotonic_now() < limit) {
    const size_t now = step;
    messages.carry(1000);
    // The first message of a step does not count: it may have waited for most of the step.
    if (step == now && last == now) ++moved[now % 2];
    last = now;
  }
  over = true;
  registering.join();
  EXPECT_GT(moved[0], kEnough) << "while memory was registered";
  EXPECT_GT(moved[1], kEnough) << "while memory was deregistered";
}

// Registration and destruction are slow; connections are replaced while memory is registered.
TEST(VerbsContext, MessagesArriveDuringSlowDestructionOfQueuePairs) {
  GpuMessages messages(
      1, {.registration = Duration::from_ms(50), .destruction = Duration::from_ms(50)});
  std::vector<uint8_t> others(1000);
  std::atomic<bool> over = false;
  std::thread registering([&] {
    while (!over) {
      const auto memory =
          messages.receiver().register_memory(0, others.data(), others.size()).value();
      EXPECT_TRUE(messages.receiver().deregister_memory(0, memory));
    }
  });
  for (uint32_t round = 0; round < 4; ++round) {
    hostile::raise(round % 2, IBV_EVENT_QP_FATAL);
    messages.carry();
    EXPECT_TRUE(messages.flush());
    EXPECT_TRUE(messages.seen_by_gpu());
  }
  over = true;
  registering.join();
}

TEST(VerbsContext, SameGpuAllocationIsRegisteredOnce) {
  hostile::configure({.devices = 1});
  HostileProcess process(0, 1);
  const GpuBuffer gpu(kSize);
  std::vector<const Memory*> memories;
  for (const uint64_t allocation : {7U, 7U, 8U, 0U, 0U}) {
    const FileDescriptor file(hostile::dma_buf_of(gpu.address()));
    const auto registered = process.context().register_memory(0, {.address = gpu.address(),
                                                                  .length = kSize,
                                                                  .kind = MemoryKind::kCuda,
                                                                  .dmabuf_fd = file.get(),
                                                                  .allocation = allocation});
    ASSERT_TRUE(registered) << registered.error().message;
    memories.push_back(*registered);
  }
  const auto key = [&](size_t i) { return memories[i]->region().key; };
  EXPECT_EQ(key(0), key(1));
  EXPECT_NE(key(0), key(2)) << "the earlier allocation is still registered";
  EXPECT_NE(key(3), key(4)) << "unknown allocations are not shared";
  for (const Memory* memory : memories) {
    EXPECT_TRUE(process.context().deregister_memory(0, memory));
  }
}

TEST(VerbsContext, HostMemoryNeedsNoFlush) {
  hostile::configure({.devices = 1});
  HostileProcess process(0, 1);
  std::vector<uint8_t> bytes(100);
  const Memory* const memory =
      process.register_memory(bytes.data(), bytes.size(), MemoryKind::kHost);
  const auto started = process.context().start_flush(0, memory, bytes.data());
  ASSERT_TRUE(started);
  EXPECT_EQ(*started, std::nullopt);
  EXPECT_TRUE(process.context().deregister_memory(0, memory));
}

}  // namespace
}  // namespace pacecar::test::context_test
