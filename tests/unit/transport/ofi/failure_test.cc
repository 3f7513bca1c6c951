// Queue pairs over libfabric when endpoints are reopened and peers end or stall, and files that
// stay open: in real time, on providers that every machine has. A missing provider is skipped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/descriptor_limit.h"
#include "tests/support/ofi_child.h"
#include "tests/support/over_ofi.h"

namespace pacecar::failure_test {
namespace {

using test::monotonic_now;
using test::OfiChild;
using test::OfiConnection;
using test::OfiEnd;
using test::OfiLoad;
using test::OfiTarget;
using test::run_until;
using testing::AllOf;
using testing::HasSubstr;

class OfiFailureTest : public test::OverOfi {
 protected:
  // A sentence that names the NIC, with its provider, and the peer.
  static testing::Matcher<std::string> names(const std::string& peer) {
    EXPECT_FALSE(peer.empty());
    return AllOf(HasSubstr("ofi:" + std::string(kind().provider) + ", peer " + peer + ": "),
                 HasSubstr(". To cure it, "));
  }
  static void expect_traffic(OfiEnd& from, OfiEnd& to) {
    const OfiConnection ends = connect(from, to);
    const auto& source = from.memory(kSize, Access::kLocalRead, 7);
    auto& sink = to.memory(kSize, Access::kRemoteWrite);
    ASSERT_TRUE(from.post(ends.a, OfiEnd::write(1, source, sink.target())));
    ASSERT_TRUE(run_until({&from, &to},
                          [&] { return from.finished(ends.a) == 1 && to.received(ends.b) == 1; }));
    EXPECT_EQ(from.sent(ends.a), 1U);
    EXPECT_EQ(sink.bytes, source.bytes);
  }
};

INSTANTIATE_TEST_SUITE_P(Over, OfiFailureTest, test::every_ofi_kind(), test::ofi_kind_name);

TEST_P(OfiFailureTest, ReopenedEndpointsBreakEveryQueuePairAndServeNewOnes) {
  OfiChild child(kind());
  OfiEnd from(kind());
  const auto& source = from.memory(kSize, Access::kLocalRead, 3);
  std::array<QueuePairId, 3> ids{};
  std::array<std::string, 3> peers;
  OfiTarget target;
  for (size_t i = 0; i < ids.size(); ++i) {
    std::tie(ids[i], target) = child.connect(from);
    peers[i] = from.nic().peer(ids[i]);
  }
  // The last queue pair is idle.
  std::array loads{OfiLoad(from, ids[0], source, target), OfiLoad(from, ids[1], source, target)};
  ASSERT_TRUE(run_until({&from}, [&] {
    for (OfiLoad& load : loads) load.top_up();
    return from.sent(ids[0]) >= 20 && from.sent(ids[1]) >= 20;
  }));
  from.nic().reopen_endpoints("the cable was pulled");
  ASSERT_TRUE(run_until({&from}, [&] {
    return std::ranges::all_of(ids, [&](QueuePairId id) { return from.broken(id) != nullptr; });
  }));
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(from.broken(ids[i])->status, CompletionStatus::kLocalError);
    EXPECT_THAT(from.nic().fault(ids[i]), names(peers[i]));
    EXPECT_THAT(from.nic().fault(ids[i]), HasSubstr(": the cable was pulled. "));
    EXPECT_FALSE(from.post(ids[i], OfiEnd::write(1, source, target)));
  }
  const QueuePairId again = child.connect(from).first;
  OfiLoad load(from, again, source, target);
  ASSERT_TRUE(run_until({&from}, [&] {
    load.top_up();
    return from.sent(again) >= 20 || from.broken(again) != nullptr;
  }));
  EXPECT_EQ(from.broken(again), nullptr) << from.nic().fault(again);
}

// The names of a NIC's three endpoints may have growing numbers, and so grow in length: 9, 10, 11.
TEST_P(OfiFailureTest, EndpointsMayBeReopenedOften) {
  OfiEnd from(kind(), Duration::from_s(10), 2);
  OfiEnd to(kind());
  for (int i = 0; i < 6; ++i) {
    from.nic().reopen_endpoints("to have others");
    expect_traffic(from, to);
  }
}

TEST_P(OfiFailureTest, KilledPeerBreaksItsQueuePairAndNewOnesWork) {
  OfiChild child(kind());
  OfiEnd from(kind(), Duration::from_s(3));
  OfiEnd other(kind());
  const auto [id, target] = child.connect(from);
  const auto& source = from.memory(kSize, Access::kLocalRead, 3);
  const auto& sink = other.memory(kSize, Access::kRemoteWrite);
  const OfiConnection good = connect(from, other);
  OfiLoad load(from, id, source, target);
  OfiLoad good_load(from, good.a, source, sink.target());
  ASSERT_TRUE(run_until({&from, &other}, [&, id = id] {
    load.top_up();
    good_load.top_up();
    return from.sent(id) >= 20;
  }));
  child.kill();  // at any point of its work
  ASSERT_TRUE(run_until({&from, &other}, [&, id = id] {
    load.top_up();
    good_load.top_up();
    return from.broken(id) != nullptr;
  }));
  EXPECT_EQ(from.broken(id)->status, CompletionStatus::kRetryExceeded);
  EXPECT_THAT(from.nic().fault(id), names(from.nic().peer(id)));
  const size_t before = from.sent(good.a);
  ASSERT_TRUE(run_until({&from, &other}, [&] {
    good_load.top_up();
    return from.sent(good.a) >= before + 100 || from.broken(good.a) != nullptr;
  }));
  EXPECT_EQ(from.broken(good.a), nullptr) << from.nic().fault(good.a);
  from.nic().destroy_queue_pair(id);
  expect_traffic(from, other);
}

// A dead peer does not confirm that it writes no more. Without a connection it cannot write.
TEST_P(OfiFailureTest, OthersSurviveDeregistrationOfWhatADeadPeerCouldWrite) {
  if (kind().slow) GTEST_SKIP() << "a provider without connections";
  OfiChild child(kind());
  OfiEnd from(kind(), Duration::from_s(3));
  OfiEnd other(kind());
  const auto& sink = from.memory(OfiChild::kRegionBytes, Access::kRemoteWrite);
  const QueuePairId id = child.connect(from, {}, sink.target()).first;
  const OfiConnection good = connect(from, other);
  const auto& source = from.memory(kSize, Access::kLocalRead, 7);
  const auto& there = other.memory(kSize, Access::kRemoteWrite);
  OfiLoad load(from, good.a, source, there.target());
  ASSERT_TRUE(run_until({&from, &other}, [&] {
    load.top_up();
    return from.received(id) == 1 && from.sent(good.a) >= 20;
  }));
  child.kill();
  child.await();
  from.nic().destroy_queue_pair(id);
  from.nic().deregister_memory(sink.region);
  const size_t before = from.sent(good.a);
  ASSERT_TRUE(run_until({&from, &other}, [&] {
    load.top_up();
    return from.sent(good.a) >= before + 100 || from.broken(good.a) != nullptr;
  }));
  EXPECT_EQ(from.broken(good.a), nullptr) << from.nic().fault(good.a);
}

TEST_P(OfiFailureTest, SilentPeerBreaksItsQueuePairAndOthersWork) {
  OfiChild child(kind());
  OfiEnd from(kind(), Duration::from_s(3));
  OfiEnd other(kind());
  const auto [id, target] = child.connect(from);
  const auto& source = from.memory(kSize, Access::kLocalRead, 3);
  OfiLoad load(from, id, source, target);
  ASSERT_TRUE(run_until({&from}, [&, id = id] {
    load.top_up();
    return from.sent(id) >= 20;
  }));
  child.ask_for(SIGSTOP);
  ASSERT_TRUE(run_until({&from}, [&, id = id] {
    load.top_up();
    return from.broken(id) != nullptr;
  }));
  EXPECT_EQ(from.broken(id)->status, CompletionStatus::kRetryExceeded);
  EXPECT_THAT(from.nic().fault(id), names(from.nic().peer(id)));
  EXPECT_THAT(from.nic().fault(id), HasSubstr("nothing has come back for 3 s"));
  const size_t finished = from.finished(id);
  child.await();
  child.resume();
  expect_traffic(from, other);
  EXPECT_EQ(from.finished(id), finished) << "a broken queue pair completes nothing more";
}

TEST_P(OfiFailureTest, WhatASilentPeerHasNotTakenIsNotInTheNextFlowsWindow) {
  OfiChild child(kind());
  OfiEnd from(kind(), Duration::from_s(1));
  OfiEnd other(kind());
  from.nic().set_flow_limits(0, {.rate = Rate::from_gbps(1000), .window = kSize}, monotonic_now());
  const auto [id, target] = child.connect(from);
  OfiLoad load(from, id, from.memory(kSize, Access::kLocalRead, 3), target);
  child.ask_for(SIGSTOP);
  ASSERT_TRUE(run_until({&from}, [&, id = id] {
    load.top_up();
    return from.broken(id) != nullptr;
  }));
  from.nic().destroy_queue_pair(id);
  expect_traffic(from, other);
  child.await();
  child.resume();
}

TEST_P(OfiFailureTest, SilenceOfAPeerThatGetsOnlyControlWritesIsDetected) {
  OfiChild child(kind());
  OfiEnd from(kind(), Duration::from_s(3));
  const auto [id, target] = child.connect(from, {.paced = false});
  const auto& word = from.memory(64, Access::kLocalRead, 3);
  uint64_t written = 0;
  const auto write_another = [&, id = id, target = target] {
    if (from.finished(id) == written && from.post(id, OfiEnd::write(written, word, target))) {
      ++written;
    }
  };
  ASSERT_TRUE(run_until({&from}, [&, id = id] {
    write_another();
    return from.sent(id) >= 100;
  }));
  child.ask_for(SIGSTOP);
  child.await();
  EXPECT_TRUE(run_until({&from}, [&, id = id] {
    write_another();
    return from.broken(id) != nullptr;
  }));
  child.resume();
}

TEST_P(OfiFailureTest, TimeWithoutTurnsOfTheNicIsNotSilence) {
  constexpr size_t kBytes = 64;  // a busy host moves them within the limit
  OfiEnd from(kind(), Duration::from_ms(200));
  OfiEnd to(kind());
  const auto& source = from.memory(kBytes, Access::kLocalRead, 3);
  const auto& sink = to.memory(kBytes, Access::kRemoteWrite);
  const OfiConnection ends = connect(from, to);
  for (uint64_t turn = 1; turn <= 4; ++turn) {
    usleep(300'000);
    ASSERT_TRUE(from.post(ends.a, OfiEnd::write(turn, source, sink.target())));
    from.step();
    usleep(300'000);
    ASSERT_TRUE(run_until({&from, &to}, [&] { return from.finished(ends.a) == turn; }))
        << from.nic().fault(ends.a);
  }
}

TEST_P(OfiFailureTest, ANicWhoseEndpointsCannotBeReopenedSleepsWithoutThem) {
  OfiEnd end(kind());
  {
    const test::DescriptorLimit none;
    end.nic().reopen_endpoints("to have none");
  }
  EXPECT_FALSE(end.nic().create_queue_pair({}));
  EXPECT_TRUE(end.nic().prepare_to_wait(monotonic_now()));
  end.step();
}

size_t open_files() {
  size_t count = 0;
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    count += file.exists() ? 1 : 0;
  }
  return count;
}

TEST_P(OfiFailureTest, ClosedNicLeavesNoOpenFiles) {
  const auto cycle = [this] {
    OfiEnd from(kind());
    OfiEnd to(kind());
    from.nic().reopen_endpoints("to see what stays");
    expect_traffic(from, to);
  };
  cycle();  // the library opens files of its own
  const size_t files = open_files();
  for (int i = 0; i < 3; ++i) {
    cycle();
    EXPECT_EQ(open_files(), files);
  }
}

}  // namespace
}  // namespace pacecar::failure_test
