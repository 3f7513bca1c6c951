// A libfabric NIC is closed while peers still write to it, on providers that every machine has. A
// missing provider is skipped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

#include "tests/support/over_ofi.h"

namespace pacecar::farewell_test {
namespace {

using test::monotonic_now;
using test::need;
using test::OfiConnection;
using test::OfiEnd;
using test::OfiLoad;
using test::OfiTarget;
using test::run_until;

class OfiFarewellTest : public test::OverOfi {
 protected:
  // Whether the memory of a closed NIC stays untouched; it may belong to others by then. That NIC
  // also has a write posted to a peer that does not answer.
  static bool stays_untouched(size_t size, bool paced) {
    std::vector<uint8_t> memory(size);
    OfiEnd from(kind());
    OfiEnd other(kind());
    const auto& source = from.memory(size, Access::kLocalRead, 3);
    {
      OfiEnd to(kind());
      const OfiConnection ends = connect(from, to, {.paced = paced});
      const OfiConnection more = connect(to, other);
      EXPECT_TRUE(to.post(more.a, OfiEnd::write(1, to.memory(8, Access::kLocalRead), {1, 1})));
      const auto sink = need(to.nic().register_memory(memory.data(), size, Access::kRemoteWrite));
      OfiLoad load(from, ends.a, source, {sink.remote_address, sink.key});
      const bool flows = run_until({&from, &to}, [&] {
        load.top_up();
        return to.received(ends.b) >= 20;
      });
      EXPECT_TRUE(flows);
      for (int turn = 0; turn < 20; ++turn) {
        load.top_up();
        from.step();
      }
      std::ranges::fill(memory, uint8_t{0xEE});
    }
    return std::ranges::all_of(memory, [](uint8_t byte) { return byte == 0xEE; });
  }
};

INSTANTIATE_TEST_SUITE_P(Over, OfiFarewellTest, test::every_ofi_kind(), test::ofi_kind_name);

TEST_P(OfiFarewellTest, ControlWritesLeaveTheMemoryOfAClosedNicAlone) {
  for (int round = 0; round < 10; ++round) EXPECT_TRUE(stays_untouched(64, false));
}

TEST_P(OfiFarewellTest, DataWritesLeaveTheMemoryOfAClosedNicAlone) {
  for (int round = 0; round < 10; ++round) EXPECT_TRUE(stays_untouched(kSize, true));
}

TEST_P(OfiFarewellTest, WritesOfADestroyedQueuePairLeaveTheWindowOnceTheyAreDone) {
  OfiEnd from(kind());
  OfiEnd to(kind());
  from.nic().set_flow_limits(0, {.rate = Rate::from_gbps(1000), .window = kSize}, monotonic_now());
  const auto& source = from.memory(kSize, Access::kLocalRead, 3);
  const auto& sink = to.memory(kSize, Access::kRemoteWrite);
  const OfiConnection ends = connect(from, to);
  ASSERT_TRUE(from.post(ends.a, OfiEnd::write(1, source, sink.target())));
  ASSERT_TRUE(run_until({&from, &to}, [&] { return from.finished(ends.a) == 1; }));
  ASSERT_TRUE(from.post(ends.a, OfiEnd::write(2, source, sink.target())));
  from.nic().transmit(monotonic_now());
  from.nic().destroy_queue_pair(ends.a);
  const OfiConnection next = connect(from, to);  // of the same flow
  ASSERT_TRUE(from.post(next.a, OfiEnd::write(3, source, sink.target())));
  EXPECT_TRUE(run_until({&from, &to}, [&] { return from.finished(next.a) == 1; }));
}

// Its last writes may arrive after that message, over other connections.
TEST_P(OfiFarewellTest, ANicThatIsClosedWhileItWritesDoesNotSayThatItWritesNoMore) {
  if (kind().slow) GTEST_SKIP() << "a provider without connections";
  OfiEnd to(kind());
  const auto& word = to.memory(8, Access::kLocalRead);
  QueuePairId id = 0;
  OfiTarget back;
  {
    OfiEnd from(kind());
    const OfiConnection ends = connect(from, to);
    id = ends.b;
    back = from.memory(8, Access::kRemoteWrite).target();
    const auto& source = from.memory(kSize, Access::kLocalRead, 3);
    const auto& sink = to.memory(kSize, Access::kRemoteWrite);
    ASSERT_TRUE(from.post(ends.a, OfiEnd::write(1, source, sink.target())));
    ASSERT_TRUE(to.post(ends.b, OfiEnd::write(1, word, back)));
    ASSERT_TRUE(run_until({&from, &to},
                          [&] { return from.finished(ends.a) == 1 && to.finished(ends.b) == 1; }));
    ASSERT_TRUE(from.post(ends.a, OfiEnd::write(2, source, sink.target())));
    from.nic().transmit(monotonic_now());
  }
  to.post(id, OfiEnd::write(2, word, back));
  ASSERT_TRUE(run_until({&to}, [&] { return to.broken(id) != nullptr; }));
  EXPECT_THAT(to.nic().fault(id), testing::Not(testing::HasSubstr("closed its end")));
}

// A messenger destroys its end when it learns that the peer's end is gone.
TEST_P(OfiFarewellTest, DestroyedEndStillAnswersAFarewell) {
  OfiEnd first(kind());
  OfiEnd second(kind());
  const OfiConnection ends = connect(second, first);
  const OfiConnection others = connect(second, first);
  const auto& source = second.memory(kSize, Access::kLocalRead, 3);
  const auto& sink = first.memory(kSize, Access::kRemoteWrite);
  ASSERT_TRUE(second.post(ends.a, OfiEnd::write(1, source, sink.target())));
  ASSERT_TRUE(run_until({&first, &second}, [&] { return second.finished(ends.a) == 1; }));

  first.nic().destroy_queue_pair(ends.b);
  ASSERT_TRUE(run_until({&first}, [&] {
    second.nic().receive(monotonic_now());
    std::array<Completion, 4> some;
    const auto completions = std::span(some).first(second.nic().poll(some));
    return std::ranges::find(completions, CompletionKind::kBroken, &Completion::kind) !=
           completions.end();
  }));
  second.nic().destroy_queue_pair(ends.a);
  {
    const std::jthread turns([&second](const std::stop_token& stop) {
      while (!stop.stop_requested()) second.step();
    });
    first.nic().deregister_memory(sink.region);
  }
  first.step();
  EXPECT_EQ(first.broken(others.b), nullptr) << first.nic().fault(others.b);
}

// It would otherwise wait for the limit of silent peers, and break all queue pairs.
TEST_P(OfiFarewellTest, ANicThatIsClosedRightAfterItsQueuePairsEndedSaysSo) {
  OfiEnd first(kind(), Duration::from_s(2));
  OfiEnd other(kind());
  const OfiConnection others = connect(first, other);
  const auto& sink = first.memory(kSize, Access::kRemoteWrite);
  {
    OfiEnd second(kind());
    const OfiConnection ends = connect(second, first);
    const auto& source = second.memory(kSize, Access::kLocalRead, 3);
    ASSERT_TRUE(second.post(ends.a, OfiEnd::write(1, source, sink.target())));
    ASSERT_TRUE(run_until({&first, &second}, [&] { return second.finished(ends.a) == 1; }));
    second.nic().destroy_queue_pair(ends.a);
  }
  first.nic().deregister_memory(sink.region);
  first.step();
  EXPECT_EQ(first.broken(others.a), nullptr) << first.nic().fault(others.a);
}

}  // namespace
}  // namespace pacecar::farewell_test
