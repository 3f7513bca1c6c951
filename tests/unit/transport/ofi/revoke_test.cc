// Memory is deregistered while a peer writes there, each NIC in a thread of its own, on providers
// that every machine has. A missing provider is skipped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "tests/support/over_ofi.h"

namespace pacecar::revoke_test {
namespace {

using test::OfiConnection;
using test::OfiEnd;
using test::OfiTarget;
using test::run_until;

class OfiRevokeTest : public test::OverOfi {
 protected:
  // With a slow provider, a write may take longer than the NIC waits. Then the NIC closes its
  // endpoints, which also ends the writes to the memory.
  static void expect_intact(OfiEnd& end, QueuePairId id) {
    if (end.broken(id) == nullptr) return;
    EXPECT_TRUE(kind().slow) << end.nic().fault(id);
  }
};

INSTANTIATE_TEST_SUITE_P(Over, OfiRevokeTest, test::every_ofi_kind(), test::ofi_kind_name);

// Writes to its target from a thread of its own, eight writes at a time.
class Writer {
 public:
  Writer(OfiEnd& end, QueuePairId id)
      : end_(end), id_(id), source_(end.memory(256 << 10, Access::kLocalRead, 3)) {}
  ~Writer() { stop(); }

  void start(const OfiTarget& target) {
    aim_at(target);
    thread_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) turn();
    });
  }
  void aim_at(const OfiTarget& target) {
    const std::lock_guard lock(mutex_);
    target_ = target;
  }
  // Afterwards the caller may use the end.
  void stop() {
    thread_.request_stop();
    if (thread_.joinable()) thread_.join();
  }
  void turn() {
    const std::unique_lock lock(mutex_);
    while (next_ < end_.finished(id_) + 8 && end_.post(id_, OfiEnd::write(next_, source_, target_)))
      ++next_;
    end_.step();
  }

 private:
  OfiEnd& end_;
  QueuePairId id_;
  const OfiEnd::Memory& source_;
  std::mutex mutex_;
  OfiTarget target_;
  uint64_t next_ = 0;
  std::jthread thread_;
};

// No peer writes to `memory` during turns of `end`.
void expect_not_written(OfiEnd& end, OfiEnd::Memory& memory) {
  std::ranges::fill(memory.bytes, uint8_t{0xEE});
  for (int i = 0; i < 300; ++i) end.step();
  EXPECT_TRUE(std::ranges::all_of(memory.bytes, [](uint8_t byte) { return byte == 0xEE; }));
}

TEST_P(OfiRevokeTest, DeregisteredMemoryIsNotWrittenAndTheQueuePairWorks) {
  OfiEnd from(kind());
  OfiEnd to(kind());
  const OfiConnection ends = connect(from, to);
  Writer writer(from, ends.a);
  std::array<OfiEnd::Memory*, 5> rounds{};
  for (OfiEnd::Memory*& memory : rounds) memory = &to.memory(kSize, Access::kRemoteWrite);
  writer.start(rounds[0]->target());
  for (OfiEnd::Memory* memory : rounds) {
    writer.aim_at(memory->target());
    const size_t before = to.received(ends.b);
    ASSERT_TRUE(run_until(
        {&to}, [&] { return to.received(ends.b) >= before + 20 || to.broken(ends.b) != nullptr; }));
    to.nic().deregister_memory(memory->region);
    expect_not_written(to, *memory);
  }
  writer.stop();
  expect_intact(from, ends.a);
  if (to.broken(ends.b) != nullptr) return expect_intact(to, ends.b);
  EXPECT_GE(from.sent(ends.a, CompletionStatus::kRemoteAccessError), rounds.size());
}

// Steps `end` in a thread of its own, after a delay.
class LateTurns {
 public:
  explicit LateTurns(OfiEnd& end)
      : thread_([&end](const std::stop_token& stop) {
          usleep(300'000);
          while (!stop.stop_requested()) end.step();
        }) {}

 private:
  std::jthread thread_;
};

// Two NICs, one of which has written to the other and may write again.
struct Written {
  Written(const test::OfiKind& kind, size_t size)
      : from(kind),
        to(kind),
        ends(connect(from, to)),
        source(from.memory(size, Access::kLocalRead, 3)),
        sink(to.memory(size, Access::kRemoteWrite)) {
    EXPECT_TRUE(post(1));
    EXPECT_TRUE(run_until({&from, &to}, [this] { return from.finished(ends.a) == 1; }));
  }
  bool post(uint64_t id) { return from.post(ends.a, OfiEnd::write(id, source, sink.target())); }

  OfiEnd from;
  OfiEnd to;
  OfiConnection ends;
  const OfiEnd::Memory& source;
  const OfiEnd::Memory& sink;
};

// A write is complete when the peer has answered it.
TEST_P(OfiRevokeTest, DeregistrationOfASourceWaitsForALatePeer) {
  Written world(kind(), kSize);
  ASSERT_TRUE(world.post(2));
  world.from.step();
  {
    const LateTurns late(world.to);
    world.from.nic().deregister_memory(world.source.region);
  }
  for (int turn = 0; turn < 100; ++turn) world.from.step();
  expect_intact(world.from, world.ends.a);
}

TEST_P(OfiRevokeTest, DeregistrationOfATargetWaitsForALatePeer) {
  Written world(kind(), kSize);
  {
    const LateTurns late(world.from);
    world.to.nic().deregister_memory(world.sink.region);
  }
  for (int turn = 0; turn < 100; ++turn) world.to.step();
  EXPECT_EQ(world.to.broken(world.ends.b), nullptr) << world.to.nic().fault(world.ends.b);
}

TEST_P(OfiRevokeTest, HaltedQueuePairReceivesNothingMore) {
  OfiEnd from(kind());
  OfiEnd to(kind());
  const OfiConnection ends = connect(from, to);
  OfiEnd::Memory& memory = to.memory(kSize, Access::kRemoteWrite);
  Writer writer(from, ends.a);
  writer.start(memory.target());
  ASSERT_TRUE(run_until({&to}, [&] { return to.received(ends.b) >= 20; }));
  to.nic().halt_queue_pair(ends.b);
  to.step();  // reports what arrived before the halt
  const size_t taken = to.received(ends.b);
  expect_not_written(to, memory);
  EXPECT_EQ(to.received(ends.b), taken);
  writer.stop();
}

// More than may wait for the mailbox. In 50 ms they may not all be confirmed on a loaded host.
TEST_P(OfiRevokeTest, HaltRevokesAllRegionsOfAQueuePair) {
  constexpr uint64_t kRegions = 300;
  OfiEnd from(kind());
  OfiEnd to(kind());
  const OfiConnection ends = connect(from, to);
  const auto& source = from.memory(8, Access::kLocalRead);
  for (uint64_t id = 1; id <= kRegions; ++id) {
    ASSERT_TRUE(
        from.post(ends.a, OfiEnd::write(id, source, to.memory(8, Access::kRemoteWrite).target())));
    ASSERT_TRUE(run_until({&from, &to}, [&] { return from.finished(ends.a) == id; }));
  }
  {
    const std::jthread turns([&from](const std::stop_token& stop) {
      while (!stop.stop_requested()) from.step();
    });
    to.nic().halt_queue_pair(ends.b);
  }
  EXPECT_THAT(to.nic().fault(ends.b), testing::Not(testing::HasSubstr("asks more")));
}

TEST_P(OfiRevokeTest, TwoNicsMayRevokeAtTheSameTime) {
  constexpr size_t kRounds = 6;
  std::array<OfiEnd, 2> nics{OfiEnd(kind()), OfiEnd(kind())};
  const OfiConnection ends = connect(nics[0], nics[1]);
  const std::array ids{ends.a, ends.b};
  std::array<std::array<OfiEnd::Memory*, kRounds>, 2> memory{};
  for (size_t side = 0; side < 2; ++side) {
    for (auto& each : memory[side]) each = &nics[side].memory(kSize, Access::kRemoteWrite);
  }
  std::atomic<size_t> ready = 0;
  std::atomic<size_t> done = 0;
  // An end that waits must take turns, because the other end's writes need them.
  const auto run_side = [&](size_t side) {
    OfiEnd& end = nics[side];
    Writer writer(end, ids[side]);
    for (size_t round = 0; round < kRounds; ++round) {
      writer.aim_at(memory[1 - side][round]->target());
      const size_t enough = end.received(ids[side]) + 20;
      bool counted = false;
      while (ready < 2 * (round + 1) && end.broken(ids[side]) == nullptr) {
        writer.turn();
        if (!counted && end.received(ids[side]) >= enough) ++ready;
        counted = counted || end.received(ids[side]) >= enough;
      }
      end.nic().deregister_memory(memory[side][round]->region);
      expect_not_written(end, *memory[side][round]);
      for (++done; done < 2 * (round + 1) && end.broken(ids[side]) == nullptr;) end.step();
    }
  };
  std::jthread other([&] { run_side(1); });
  run_side(0);
  other.join();
  for (size_t side = 0; side < 2; ++side) {
    expect_intact(nics[side], ids[side]);
  }
}

}  // namespace
}  // namespace pacecar::revoke_test
