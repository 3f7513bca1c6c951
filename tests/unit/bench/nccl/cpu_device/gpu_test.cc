// Streams and events: the order of commands. Commands whose gate is closed stand for long kernels.
#include "bench/nccl/cpu_device/gpu.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace pacecar::gpu_test {
namespace {

using nccl::cpu::Command;
using nccl::cpu::Event;
using nccl::cpu::Gpu;
using nccl::cpu::Stream;

// The settings are read when they are first used, of which there is nothing before main().
[[maybe_unused]] const int two_gpus = setenv("CPU_GPU_COUNT", "2", 1);

Gpu& gpu() { return Gpu::get(0); }

// A stream for one test.
class OwnStream {
 public:
  explicit OwnStream(bool blocking, Gpu& of = gpu()) : stream_(of.create_stream(blocking)) {}
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() { stream_.gpu().destroy(stream_); }

  Stream& operator*() const { return stream_; }
  void enqueue(Command command) const { stream_.gpu().enqueue(stream_, std::move(command)); }
  bool idle() const { return Gpu::idle(stream_); }
  void wait() const { stream_.gpu().wait_until_idle(stream_); }

 private:
  Stream& stream_;
};

// Holds up a stream until it is opened.
class Gate {
 public:
  Gate() = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() { open(); }  // nothing of a failed test holds up the next

  void open() { *open_ = true; }
  Command command() const {
    return [open = open_] { return open->load(); };
  }

 private:
  std::shared_ptr<std::atomic<bool>> open_ = std::make_shared<std::atomic<bool>>(false);
};

Command flag(std::atomic<bool>& done) {
  return [&done] {
    done = true;
    return true;
  };
}

// Ends at the `turns`-th call, until which all that may run has had several turns.
Command some_turns(int turns = 5) {
  return [turns]() mutable { return --turns <= 0; };
}
void let_others_run() {
  const OwnStream beside(false);
  beside.enqueue(some_turns());
  beside.wait();
}

// --- one stream ---

TEST(Stream, RunsItsCommandsInOrder) {
  const OwnStream stream(false);
  std::vector<int> ran;
  for (int i = 0; i < 100; ++i) {
    stream.enqueue([&ran, i, turns = i % 3]() mutable {
      if (turns-- > 0) return false;
      ran.push_back(i);
      return true;
    });
  }
  stream.wait();
  ASSERT_EQ(ran.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ran[static_cast<size_t>(i)], i);
}

TEST(Stream, CallsACommandUntilItIsDone) {
  const OwnStream stream(false);
  int calls = 0;
  int calls_when_next_ran = 0;
  stream.enqueue([&] { return ++calls == 1000; });
  stream.enqueue([&] {
    calls_when_next_ran = calls;
    return true;
  });
  stream.wait();
  EXPECT_EQ(calls, 1000);
  EXPECT_EQ(calls_when_next_ran, 1000);
}

TEST(Stream, IsIdleWhenAllIsDone) {
  const OwnStream stream(false);
  EXPECT_TRUE(stream.idle());
  stream.wait();
  Gate gate;
  stream.enqueue(gate.command());
  stream.enqueue(some_turns());
  let_others_run();
  EXPECT_FALSE(stream.idle());
  gate.open();
  stream.wait();
  EXPECT_TRUE(stream.idle());
}

TEST(Stream, FreesACommandThatIsDone) {
  const OwnStream stream(false);
  auto owned = std::make_shared<int>(0);
  const std::weak_ptr<int> seen = owned;
  stream.enqueue([owned = std::move(owned)] { return true; });
  stream.wait();
  EXPECT_TRUE(seen.expired());
}

TEST(Stream, MayBeEnqueuedToByACommand) {
  const OwnStream stream(false);
  const OwnStream other(false);
  std::atomic<bool> done = false;
  stream.enqueue([&] {
    other.enqueue(flag(done));
    return true;
  });
  stream.wait();
  other.wait();
  EXPECT_TRUE(done);
}

TEST(Stream, HasAnIdOfItsOwn) {
  const OwnStream one(true);
  const OwnStream other(true);
  EXPECT_NE((*one).id(), (*other).id());
  EXPECT_NE((*one).id(), gpu().default_stream().id());
  EXPECT_EQ(&(*one).gpu(), &gpu());
}

TEST(Stream, DestroyedWithCommandsLeftStillRunsThem) {
  Gate gate;
  Event reached;
  auto owned = std::make_shared<std::atomic<int>>(0);
  {
    const OwnStream stream(true);
    stream.enqueue(gate.command());
    for (int i = 0; i < 3; ++i) {
      stream.enqueue([owned] {
        ++*owned;
        return true;
      });
    }
    reached.record(*stream);
  }
  let_others_run();
  EXPECT_EQ(*owned, 0);
  gate.open();
  reached.wait();
  EXPECT_EQ(*owned, 3);
}

// --- several streams ---

TEST(Streams, DoNotWaitForEachOther) {
  for (const bool blocking : {false, true}) {
    const OwnStream held(blocking);
    const OwnStream other(blocking);
    Gate gate;
    held.enqueue(gate.command());
    other.enqueue(some_turns());
    other.wait();
    EXPECT_FALSE(held.idle());
  }
}

TEST(Streams, DefaultWaitsForEarlierCommandsOfBlockingStreams) {
  const OwnStream blocking(true);
  Gate gate;
  std::atomic<bool> done = false;
  blocking.enqueue(gate.command());
  gpu().enqueue(gpu().default_stream(), flag(done));
  let_others_run();
  EXPECT_FALSE(done);
  gate.open();
  gpu().wait_until_idle(gpu().default_stream());
  EXPECT_TRUE(done);
  EXPECT_TRUE(blocking.idle());
}

TEST(Streams, BlockingOnesWaitForEarlierCommandsOfTheDefaultStream) {
  const OwnStream blocking(true);
  const OwnStream free(false);
  Gate gate;
  std::atomic<bool> done = false;
  gpu().enqueue(gpu().default_stream(), gate.command());
  blocking.enqueue(flag(done));
  free.enqueue(some_turns());
  free.wait();  // does not wait for the default stream
  EXPECT_FALSE(done);
  EXPECT_FALSE(Gpu::idle(gpu().default_stream()));
  gate.open();
  blocking.wait();
  EXPECT_TRUE(done);
}

TEST(Streams, DefaultDoesNotWaitForNonBlockingOnes) {
  const OwnStream held(false);
  Gate gate;
  held.enqueue(gate.command());
  gpu().enqueue(gpu().default_stream(), some_turns());
  gpu().wait_until_idle(gpu().default_stream());
  EXPECT_FALSE(held.idle());
}

TEST(Streams, DefaultWaitsOnlyForWhatIsEarlier) {
  const OwnStream held(true);
  const OwnStream other(true);
  const OwnStream late(true);
  Gate first;
  Gate second;
  std::atomic<bool> earlier = false;
  std::atomic<bool> ordinary = false;
  std::atomic<bool> later = false;
  held.enqueue(first.command());
  other.enqueue(flag(earlier));
  gpu().enqueue(gpu().default_stream(), flag(ordinary));
  late.enqueue(flag(later));
  held.enqueue(second.command());
  other.wait();  // its command is earlier than that of the default stream, and need not wait
  EXPECT_TRUE(earlier);
  let_others_run();
  EXPECT_FALSE(ordinary);
  EXPECT_FALSE(later);
  first.open();
  late.wait();  // the second gate, which is later, holds up neither
  EXPECT_TRUE(ordinary);
  EXPECT_TRUE(later);
}

TEST(Streams, AreAllWaitedForTogether) {
  const OwnStream one(true);
  const OwnStream other(false);
  one.enqueue(some_turns(300));
  other.enqueue(some_turns(200));
  gpu().enqueue(gpu().default_stream(), some_turns(100));
  gpu().wait_until_idle();
  EXPECT_TRUE(one.idle());
  EXPECT_TRUE(other.idle());
  EXPECT_TRUE(Gpu::idle(gpu().default_stream()));
}

TEST(Streams, AreUsedCreatedAndDestroyedByManyThreads) {
  constexpr int kThreads = 3;
  constexpr int kRounds = 50;
  std::atomic<int> ran = 0;
  const auto count = [&ran] {
    ++ran;
    return true;
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const OwnStream own(round % 2 == 0);
        own.enqueue(count);
        gpu().enqueue(gpu().default_stream(), count);
        if (round % 3 == 0) own.wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  gpu().wait_until_idle();
  EXPECT_EQ(ran, kThreads * kRounds * 2);
}

// Asked for without a lock, by threads that copy memory, for example.
TEST(Streams, DefaultIsTheSameWhileOthersAreCreated) {
  Stream& expected = gpu().default_stream();
  std::atomic<bool> created = false;
  std::thread creates([&created] {
    std::vector<std::unique_ptr<OwnStream>> streams;
    for (int i = 0; i < 300; ++i) streams.push_back(std::make_unique<OwnStream>(false));
    created.store(true, std::memory_order_relaxed);
  });
  while (!created.load(std::memory_order_relaxed)) EXPECT_EQ(&gpu().default_stream(), &expected);
  creates.join();
}

// --- events ---

TEST(Event, NeverRecordedHoldsUpNothing) {
  const Event event;
  const OwnStream stream(false);
  EXPECT_TRUE(event.reached());
  event.wait();
  event.hold(*stream);
  stream.wait();
}

TEST(Event, IsReachedWhenWhatIsBeforeItIsDone) {
  const OwnStream stream(false);
  Gate gate;
  Gate behind;
  Event event;
  stream.enqueue(gate.command());
  event.record(*stream);
  stream.enqueue(behind.command());
  let_others_run();
  EXPECT_FALSE(event.reached());
  gate.open();
  event.wait();
  EXPECT_TRUE(event.reached());
  EXPECT_FALSE(stream.idle());
}

TEST(Event, HoldsUpAnotherStream) {
  const OwnStream recorded(false);
  const OwnStream held(false);
  Gate gate;
  Event event;
  std::atomic<bool> before = false;
  std::atomic<bool> after = false;
  recorded.enqueue(gate.command());
  event.record(*recorded);
  held.enqueue(flag(before));
  event.hold(*held);
  held.enqueue(flag(after));
  let_others_run();
  EXPECT_TRUE(before);
  EXPECT_FALSE(after);
  gate.open();
  held.wait();
  EXPECT_TRUE(after);
}

TEST(Event, HoldsUpWhatItMeantAtThatTime) {
  const OwnStream recorded(false);
  const OwnStream held(false);
  Gate gate;
  Event event;
  event.record(*recorded);
  event.hold(*held);
  recorded.enqueue(gate.command());
  event.record(*recorded);
  held.wait();  // does not wait for the later record
  EXPECT_FALSE(event.reached());
}

// What NCCL does with one event for all its streams.
TEST(Event, RecordedAgainElsewhereStillHoldsUpForTheFirstRecord) {
  const OwnStream slow(false);
  const OwnStream quick(false);
  const OwnStream held(false);
  Gate gate;
  Event event;
  std::atomic<bool> after = false;
  slow.enqueue(gate.command());
  event.record(*slow);
  event.hold(*held);
  held.enqueue(flag(after));
  event.record(*quick);
  event.wait();
  let_others_run();
  EXPECT_FALSE(after);
  gate.open();
  held.wait();
  EXPECT_TRUE(after);
}

TEST(Event, RecordedAgainIsNotReachedByTheFirstRecord) {
  const OwnStream first(false);
  const OwnStream second(false);
  Gate gate;
  Event event;
  second.enqueue(gate.command());
  event.record(*first);
  event.record(*second);
  first.wait();
  let_others_run();
  EXPECT_FALSE(event.reached());
  gate.open();
  event.wait();
  EXPECT_TRUE(event.reached());
}

TEST(Event, ReachedStaysReachedWhenAnEarlierRecordFollows) {
  const OwnStream slow(false);
  const OwnStream quick(false);
  Gate gate;
  Event event;
  slow.enqueue(gate.command());
  event.record(*slow);
  event.record(*quick);
  event.wait();
  EXPECT_TRUE(event.reached());
  gate.open();
  slow.wait();
  EXPECT_TRUE(event.reached());
}

TEST(Event, MayBeDestroyedBeforeItIsReached) {
  const OwnStream recorded(false);
  const OwnStream held(false);
  Gate gate;
  recorded.enqueue(gate.command());
  {
    Event event;
    event.record(*recorded);
    event.hold(*held);
  }
  let_others_run();
  EXPECT_FALSE(held.idle());
  gate.open();
  held.wait();
}

TEST(Event, HoldsUpAStreamOfAnotherGpu) {
  const OwnStream here(true);
  const OwnStream there(true, Gpu::get(1));
  EXPECT_EQ(Gpu::get(1).number(), 1);
  Gate gate;
  Event event;
  std::atomic<bool> after = false;
  here.enqueue(gate.command());
  event.record(*here);
  event.hold(*there);
  there.enqueue(flag(after));
  Gpu::get(1).enqueue(Gpu::get(1).default_stream(), some_turns(1));
  EXPECT_FALSE(event.reached());
  EXPECT_FALSE(after);
  gate.open();
  Gpu::get(1).wait_until_idle();
  EXPECT_TRUE(after);
}

}  // namespace
}  // namespace pacecar::gpu_test
